import com.sun.jna.Library;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.Structure;
import com.sun.jna.ptr.PointerByReference;

/** What this program calls of indexmill.h, as JNA sees it; size_t is 64 bits. */
interface Indexmill extends Library {
    Indexmill LIBRARY = Native.load("indexmill", Indexmill.class);

    int ABI_VERSION = 3;
    int FLOAT32 = 1;
    int ID_UINT64 = 2;
    int ID_STRING = 3;
    int ID_BINARY = 4;

    int im_abi_version();

    String im_last_error();

    int im_open(String path, String engine, PointerByReference out);

    void im_close(Pointer index);

    int im_info(Pointer index, Info out);

    int im_search_params_default(SearchParams out, long structBytes);

    int im_search(Pointer index, Memory queries, int dtype, long nQueries, long dim, SearchParams params, long[] outIds,
        float[] outScores, Pointer outCounters);

    int im_search_texts(Pointer index, Memory queries, int dtype, long nQueries, long dim, SearchParams params,
        PointerByReference outTexts, long[] outVectorIds, float[] outScores, Pointer outCounters);

    void im_texts_free(Pointer texts);

    /** ImInfo. */
    @Structure.FieldOrder({"structBytes", "kind", "nVectors", "dim", "dtype", "queryDtype", "metric", "idType",
        "maxDegree", "nNavigation", "nLists", "nTables"})
    class Info extends Structure {
        public int structBytes;
        public int kind;
        public long nVectors;
        public long dim;
        public int dtype;
        public int queryDtype;
        public int metric;
        public int idType;
        public int maxDegree;
        public int nNavigation;
        public int nLists;
        public int nTables;

        public Info() {
            structBytes = size();
        }
    }

    /** ImSearchParams. */
    @Structure.FieldOrder({"structBytes", "k", "searchListSize", "beamWidth", "policy", "entry", "threads", "inflight",
        "deterministic", "reserved", "allow", "cancel", "nprobe", "rerank", "prune", "probes", "candidates"})
    class SearchParams extends Structure {
        public int structBytes;
        public int k;
        public int searchListSize;
        public int beamWidth;
        public int policy;
        public int entry;
        public int threads;
        public int inflight;
        public int deterministic;
        public int reserved;
        public Pointer allow;
        public Pointer cancel;
        public int nprobe;
        public int rerank;
        public float prune;
        public int probes;
        public long candidates;
    }

    /** ImTexts. */
    @Structure.FieldOrder({"structBytes", "reserved", "n", "starts", "bytes"})
    class Texts extends Structure {
        public int structBytes;
        public int reserved;
        public long n;
        public Pointer starts;
        public Pointer bytes;

        /** Reads what the library has stored there. */
        public Texts(Pointer memory) {
            super(memory);
            read();
        }
    }
}
