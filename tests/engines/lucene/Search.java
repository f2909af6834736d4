import java.io.DataInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.lucene.document.DoubleField;
import org.apache.lucene.document.LongField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.KnnFloatVectorField;
import org.apache.lucene.index.*;
import org.apache.lucene.search.*;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.BytesRef;

/**
 * Searches an export with lucene-core alone. Search vectors FOLDER QUERIES K: prints what each search found, a line a
 * query, then how many vectors were visited. QUERIES holds big-endian floats, or bytes. Search fields FOLDER: prints the
 * stored fields of each document, a field a line. Search terms FOLDER FIELD KIND VALUE: prints the documents that have
 * the value. Search append FOLDER ID: adds a document and merges all
 * segments into one.
 */
public class Search {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("append")) {
            append(Path.of(args[1]), Long.parseLong(args[2]));
            return;
        }
        try (var reader = DirectoryReader.open(FSDirectory.open(Path.of(args[1])))) {
            switch (args[0]) {
                case "vectors":
                    vectors(reader, Path.of(args[2]), Integer.parseInt(args[3]));
                    break;
                case "fields":
                    fields(reader);
                    break;
                default:
                    print(new IndexSearcher(reader).search(query(args[2], args[3], args[4]), reader.maxDoc()));
            }
        }
    }

    static void vectors(DirectoryReader reader, Path file, int k) throws Exception {
        var searcher = new IndexSearcher(reader);
        LeafReader leaf = reader.leaves().get(0).reader();
        FieldInfo info = leaf.getFieldInfos().fieldInfo("vector");
        int dim = info.getVectorDimension();
        long visited = 0;
        try (var queries = new DataInputStream(Files.newInputStream(file))) {
            while (queries.available() > 0) {
                if (info.getVectorEncoding() == VectorEncoding.BYTE) {
                    byte[] query = queries.readNBytes(dim);
                    print(searcher.search(new KnnByteVectorQuery("vector", query, k), k));
                    visited += leaf.searchNearestVectors("vector", query, k, null, Integer.MAX_VALUE).totalHits.value;
                } else {
                    float[] query = new float[dim];
                    for (int i = 0; i < dim; i++) {
                        query[i] = queries.readFloat();
                    }
                    print(searcher.search(new KnnFloatVectorQuery("vector", query, k), k));
                    visited += leaf.searchNearestVectors("vector", query, k, null, Integer.MAX_VALUE).totalHits.value;
                }
            }
        }
        System.out.println(visited);
    }

    static void fields(DirectoryReader reader) throws Exception {
        var slots = reader.leaves().get(0).reader().getNumericDocValues("slot");
        for (int document = 0; document < reader.maxDoc(); document++) {
            slots.advance(document);
            System.out.println(document + "\tslot\t" + slots.longValue());
            for (IndexableField field : reader.storedFields().document(document)) {
                String value = field.binaryValue() != null ? field.binaryValue().toString()
                    : field.numericValue() != null ? field.numericValue().toString() : field.stringValue();
                System.out.println(document + "\t" + field.name() + "\t" + value);
            }
        }
    }

    static Query query(String field, String kind, String value) {
        switch (kind) {
            case "long":
                return LongField.newExactQuery(field, Long.parseLong(value));
            case "double":
                return DoubleField.newExactQuery(field, Double.parseDouble(value));
            default:
                return new TermQuery(new Term(field, new BytesRef(value)));
        }
    }

    static void append(Path folder, long id) throws Exception {
        try (var writer = new IndexWriter(FSDirectory.open(folder), new IndexWriterConfig(null))) {
            var document = new Document();
            document.add(new LongField("id", id, Field.Store.YES));
            document.add(new KnnFloatVectorField("vector", new float[16]));
            writer.addDocument(document);
            writer.forceMerge(1);
        }
    }

    static void print(TopDocs found) {
        System.out.println(Arrays.stream(found.scoreDocs).map(hit -> "" + hit.doc).collect(Collectors.joining(" ")));
    }
}
