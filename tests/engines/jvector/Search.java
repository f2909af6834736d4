import io.github.jbellis.jvector.disk.RandomAccessReader;
import io.github.jbellis.jvector.disk.SimpleMappedReader;
import io.github.jbellis.jvector.graph.GraphSearcher;
import io.github.jbellis.jvector.graph.disk.OnDiskGraphIndex;
import io.github.jbellis.jvector.util.Bits;
import io.github.jbellis.jvector.vector.VectorSimilarityFunction;
import io.github.jbellis.jvector.vector.VectorizationProvider;
import io.github.jbellis.jvector.vector.types.VectorFloat;
import java.io.DataInputStream;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.stream.Collectors;

/**
 * Searches an export: FOLDER QUERIES L SIMILARITY N. QUERIES holds big-endian floats. Prints what each search found, a line
 * a query, then a line a query with the similarity of its codes to every vector, then how many vectors were visited.
 */
public class Search {
    public static void main(String[] args) throws Exception {
        var folder = Path.of(args[0]);
        int listSize = Integer.parseInt(args[2]);
        var similarity = VectorSimilarityFunction.valueOf(args[3]);
        var types = VectorizationProvider.getInstance().getVectorTypeSupport();
        try (var index = OnDiskGraphIndex.load(new SimpleMappedReader.Supplier(folder.resolve("index.jvector")));
             var queries = new DataInputStream(Files.newInputStream(Path.of(args[1])))) {
            var view = index.getView();
            int dim = index.getDimension();
            int n = Integer.parseInt(args[4]);
            var codes = new StringBuilder();
            long visited = 0;
            var reader = new SimpleMappedReader.Supplier(folder.resolve("index.pqv")).get();
            Object compressed = pqVectors().getMethod("load", RandomAccessReader.class).invoke(null, reader);
            while (queries.available() >= 4 * dim) {
                var query = types.createFloatVector(dim);
                for (int i = 0; i < dim; i++) {
                    query.set(i, queries.readFloat());
                }
                var found = GraphSearcher.search(query, listSize, view, similarity, index, Bits.ALL);
                visited += found.getVisitedCount();
                System.out.println(Arrays.stream(found.getNodes()).map(each -> "" + each.node).collect(Collectors.joining(" ")));
                codes.append(scores(compressed, query, similarity, n)).append('\n');
            }
            System.out.print(codes);
            System.out.println(visited);
        }
    }

    /** The class moved between versions 3 and 4. */
    static Class<?> pqVectors() throws ClassNotFoundException {
        try {
            return Class.forName("io.github.jbellis.jvector.quantization.PQVectors");
        } catch (ClassNotFoundException e) {
            return Class.forName("io.github.jbellis.jvector.pq.PQVectors");
        }
    }

    static String scores(Object compressed, VectorFloat<?> query, VectorSimilarityFunction similarity, int n) throws Exception {
        Method scorer = compressed.getClass().getMethod("precomputedScoreFunctionFor", VectorFloat.class, VectorSimilarityFunction.class);
        var score = (io.github.jbellis.jvector.graph.similarity.ScoreFunction) scorer.invoke(compressed, query, similarity);
        var line = new StringBuilder();
        for (int i = 0; i < n; i++) {
            line.append(score.similarityTo(i)).append(' ');
        }
        return line.toString();
    }
}
