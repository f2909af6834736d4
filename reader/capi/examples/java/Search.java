import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.PointerByReference;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Searches an index from Java, through JNA: Search INDEX QUERIES [K].
 *
 * <p>QUERIES is a file of raw query vectors, row after row, in the index's query type. Prints user ids and scores.
 *
 * <pre>
 * make install-library PREFIX=$HOME/.local                 (in the repository; docs/guides/embed.md)
 * mvn -q -DoutputDirectory=lib dependency:copy-dependencies
 * javac -cp 'lib/*' *.java
 * java -Djna.library.path=$HOME/.local/lib -cp 'lib/*:.' Search products.index queries.f32 10
 * </pre>
 *
 * <p>Messages of the library belong to the thread of the operating system that made the call: ask for them on the same
 * thread. On virtual threads, which move, make calls on an executor of platform threads.
 */
public final class Search implements AutoCloseable {
    /** Candidates that a search keeps, at least k. */
    private static final int LIST_SIZE = 100;

    private final Pointer index;
    private final Indexmill.Info info = new Indexmill.Info();

    Search(String path) throws IOException {
        int version = Indexmill.LIBRARY.im_abi_version();
        if (version != Indexmill.ABI_VERSION) {
            throw new IOException("libindexmill has ABI " + version + ", expected " + Indexmill.ABI_VERSION);
        }
        var out = new PointerByReference();
        check(Indexmill.LIBRARY.im_open(path, null, out));
        index = out.getValue();
        check(Indexmill.LIBRARY.im_info(index, info));
    }

    @Override
    public void close() {
        Indexmill.LIBRARY.im_close(index);
    }

    /** Prints the k nearest vectors of each query. */
    void search(byte[] queries, int k) throws IOException {
        if (k < 1) {
            throw new IOException("k: expected at least 1, got " + k);
        }
        int vectorBytes = (int) info.dim * (info.queryDtype == Indexmill.FLOAT32 ? Float.BYTES : 1);
        int n = queries.length / vectorBytes;
        if (n == 0) {
            return;
        }
        var params = new Indexmill.SearchParams();
        check(Indexmill.LIBRARY.im_search_params_default(params, params.size()));
        params.k = k;
        params.searchListSize = Math.max(k, LIST_SIZE);
        float[] scores = new float[n * k];
        String[] names;
        try (var rows = new Memory((long) n * vectorBytes)) {
            rows.write(0, queries, 0, n * vectorBytes);
            names = hasTexts() ? searchTexts(rows, n, params, scores) : searchNumbers(rows, n, params, scores);
        }
        for (int q = 0; q < n; q++) {
            var line = new StringBuilder("query " + q + ":");
            for (int i = q * k; i < (q + 1) * k && !Float.isNaN(scores[i]); i++) { // NaN: fewer than k were reachable
                line.append(' ').append(names[i]).append(" (").append(scores[i]).append(')');
            }
            System.out.println(line);
        }
    }

    /** Whether user ids are text or bytes. */
    private boolean hasTexts() {
        return info.idType == Indexmill.ID_STRING || info.idType == Indexmill.ID_BINARY;
    }

    /** Fills scores; returns user ids that are numbers. */
    private String[] searchNumbers(Memory rows, int n, Indexmill.SearchParams params, float[] scores)
        throws IOException {
        long[] ids = new long[scores.length];
        check(Indexmill.LIBRARY.im_search(index, rows, info.queryDtype, n, info.dim, params, ids, scores, null));
        var names = new String[ids.length];
        for (int i = 0; i < ids.length; i++) {
            names[i] = info.idType == Indexmill.ID_UINT64 ? Long.toUnsignedString(ids[i]) : Long.toString(ids[i]);
        }
        return names;
    }

    /** Fills scores; returns user ids that are text or bytes. */
    private String[] searchTexts(Memory rows, int n, Indexmill.SearchParams params, float[] scores)
        throws IOException {
        var out = new PointerByReference();
        check(Indexmill.LIBRARY.im_search_texts(index, rows, info.queryDtype, n, info.dim, params, out, null, scores,
            null));
        try {
            var texts = new Indexmill.Texts(out.getValue());
            long[] starts = texts.starts.getLongArray(0, scores.length + 1);
            var names = new String[scores.length];
            for (int i = 0; i < names.length; i++) {
                byte[] text = texts.bytes.getByteArray(starts[i], (int) (starts[i + 1] - starts[i]));
                names[i] = new String(text, StandardCharsets.UTF_8);
            }
            return names;
        } finally {
            Indexmill.LIBRARY.im_texts_free(out.getValue());
        }
    }

    private static long check(long result) throws IOException {
        if (result < 0) {
            throw new IOException(Indexmill.LIBRARY.im_last_error());
        }
        return result;
    }

    public static void main(String[] args) throws IOException {
        if (args.length < 2 || args.length > 3) {
            System.err.println("usage: Search INDEX QUERIES [K]");
            System.exit(2);
        }
        byte[] queries = Files.readAllBytes(Path.of(args[1]));
        try (var search = new Search(args[0])) {
            search.search(queries, args.length == 3 ? Integer.parseInt(args[2]) : 10);
        } catch (IOException failed) {
            System.err.println(failed.getMessage());
            System.exit(1);
        }
    }
}
