// Searches an index from Go:
//
//	search INDEX QUERIES [K]
//
// QUERIES is a file of raw query vectors, row after row, in the index's query type. Prints user ids and scores.
//
//	make install-library PREFIX=$HOME/.local      (in the repository; docs/guides/embed.md)
//	export PKG_CONFIG_PATH=$HOME/.local/lib/pkgconfig LD_LIBRARY_PATH=$HOME/.local/lib
//	go build -o search . && ./search products.index queries.f32 10
package main

/*
#cgo pkg-config: indexmill
#include <stdlib.h>
#include <indexmill.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"unsafe"
)

// listSize is how many candidates a search keeps, if k is not more.
const listSize = 100

// Index is an open index; any number of goroutines may search it, but not after Close.
type Index struct {
	handle *C.ImIndex
	info   C.ImInfo
}

// Answer is one vector that was found.
type Answer struct {
	ID    string
	Score float32
}

// try runs one call and returns the library's message if it failed. Messages belong to the operating system's thread
// that made the call, so the goroutine must not move to another one in between.
func try(call func() int64) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	result := call()
	if result < 0 {
		return result, errors.New(C.GoString(C.im_last_error()))
	}
	return result, nil
}

// Open opens the index in a directory.
func Open(path string) (*Index, error) {
	if version := C.im_abi_version(); version != C.IM_ABI_VERSION {
		return nil, fmt.Errorf("libindexmill has ABI %d, this program was built for %d", version, C.IM_ABI_VERSION)
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	index := &Index{info: C.ImInfo{struct_bytes: C.sizeof_ImInfo}}
	if _, err := try(func() int64 { return int64(C.im_open(name, nil, &index.handle)) }); err != nil {
		return nil, err
	}
	if _, err := try(func() int64 { return int64(C.im_info(index.handle, &index.info)) }); err != nil {
		index.Close()
		return nil, err
	}
	return index, nil
}

// Close releases the index.
func (index *Index) Close() {
	C.im_close(index.handle)
	index.handle = nil
}

// VectorBytes is the size of one query.
func (index *Index) VectorBytes() int {
	if index.info.query_dtype == C.IM_FLOAT32 {
		return 4 * int(index.info.dim)
	}
	return int(index.info.dim)
}

// Search returns the k nearest vectors of each query; queries holds them row after row, in the index's query type.
func (index *Index) Search(queries []byte, k int) ([][]Answer, error) {
	if k < 1 {
		return nil, fmt.Errorf("k: expected at least 1, got %d", k)
	}
	n := len(queries) / index.VectorBytes()
	if n == 0 {
		return nil, nil
	}
	var params C.ImSearchParams
	if _, err := try(func() int64 { return int64(C.im_search_params_default(&params, C.sizeof_ImSearchParams)) }); err != nil {
		return nil, err
	}
	params.k = C.uint32_t(k)
	params.search_list_size = listSize
	if k > listSize {
		params.search_list_size = params.k
	}
	ids, scores := make([]int64, n*k), make([]float32, n*k)
	aligned := C.CBytes(queries) // a []byte may lie anywhere, floats may not
	defer C.free(aligned)
	var texts *C.ImTexts
	_, err := try(func() int64 {
		dtype, n, dim, scores := index.info.query_dtype, C.size_t(n), C.size_t(index.info.dim), (*C.float)(&scores[0])
		if index.hasTexts() {
			return int64(C.im_search_texts(index.handle, aligned, dtype, n, dim, &params, &texts, nil, scores, nil))
		}
		return int64(C.im_search(index.handle, aligned, dtype, n, dim, &params, (*C.int64_t)(&ids[0]), scores, nil))
	})
	if err != nil {
		return nil, err
	}
	defer C.im_texts_free(texts) // nil is ignored
	names := index.names(texts, ids)
	answers := make([][]Answer, n)
	for i, score := range scores {
		if !math.IsNaN(float64(score)) { // NaN: fewer than k were reachable
			answers[i/k] = append(answers[i/k], Answer{names[i], score})
		}
	}
	return answers, nil
}

// hasTexts says whether user ids are text or bytes.
func (index *Index) hasTexts() bool {
	return index.info.id_type == C.IM_ID_STRING || index.info.id_type == C.IM_ID_BINARY
}

// names returns the user ids of all answers as text.
func (index *Index) names(texts *C.ImTexts, ids []int64) []string {
	names := make([]string, len(ids))
	if index.hasTexts() {
		starts := unsafe.Slice((*uint64)(texts.starts), len(ids)+1)
		bytes := unsafe.Slice((*byte)(texts.bytes), starts[len(ids)])
		for i := range names {
			names[i] = string(bytes[starts[i]:starts[i+1]])
		}
		return names
	}
	for i, id := range ids {
		if index.info.id_type == C.IM_ID_UINT64 {
			names[i] = strconv.FormatUint(uint64(id), 10)
		} else {
			names[i] = strconv.FormatInt(id, 10)
		}
	}
	return names
}

func run(arguments []string) error {
	if len(arguments) < 2 || len(arguments) > 3 {
		return errors.New("usage: search INDEX QUERIES [K]")
	}
	k := 10
	if len(arguments) == 3 {
		var err error
		if k, err = strconv.Atoi(arguments[2]); err != nil {
			return err
		}
	}
	queries, err := os.ReadFile(arguments[1])
	if err != nil {
		return err
	}
	index, err := Open(arguments[0])
	if err != nil {
		return err
	}
	defer index.Close()
	answers, err := index.Search(queries, k)
	if err != nil {
		return err
	}
	for q, found := range answers {
		fmt.Printf("query %d:", q)
		for _, answer := range found {
			fmt.Printf(" %s (%g)", answer.ID, answer.Score)
		}
		fmt.Println()
	}
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
