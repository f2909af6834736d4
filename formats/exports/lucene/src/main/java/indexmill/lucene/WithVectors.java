package indexmill.lucene;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.lucene.codecs.KnnVectorsReader;
import org.apache.lucene.index.ByteVectorValues;
import org.apache.lucene.index.CodecReader;
import org.apache.lucene.index.DocValuesType;
import org.apache.lucene.index.FieldInfo;
import org.apache.lucene.index.FieldInfos;
import org.apache.lucene.index.FilterCodecReader;
import org.apache.lucene.index.FloatVectorValues;
import org.apache.lucene.index.IndexOptions;
import org.apache.lucene.search.KnnCollector;
import org.apache.lucene.search.VectorScorer;
import org.apache.lucene.util.Bits;

/** A segment of documents to which the stream adds a vector each, read while the segment is merged into another one. */
final class WithVectors extends FilterCodecReader {
  static final String FIELD = "vector";

  private final FieldInfos fields;
  private final KnnVectorsReader vectors;

  WithVectors(CodecReader documents, Stream in, Head head) {
    super(documents);
    List<FieldInfo> all = new ArrayList<>();
    int number = 0;
    for (FieldInfo field : documents.getFieldInfos()) {
      all.add(field);
      number = Math.max(number, field.number + 1);
    }
    all.add(new FieldInfo(FIELD, number, false, false, false, IndexOptions.NONE, DocValuesType.NONE, -1, Map.of(),
        0, 0, 0, head.dim, head.encoding, head.similarity, false, false));
    fields = new FieldInfos(all.toArray(new FieldInfo[0]));
    vectors = new StreamedVectors(in, head, documents.maxDoc());
  }

  @Override
  public FieldInfos getFieldInfos() {
    return fields;
  }

  @Override
  public KnnVectorsReader getVectorReader() {
    return vectors;
  }

  @Override
  public CacheHelper getCoreCacheHelper() {
    return null;
  }

  @Override
  public CacheHelper getReaderCacheHelper() {
    return null;
  }

  private static UnsupportedOperationException notSearched() {
    return new UnsupportedOperationException("vectors of a stream are written, not searched");
  }

  /** The next vectors of the stream, once. */
  private static final class StreamedVectors extends KnnVectorsReader {
    private final Stream in;
    private final Head head;
    private final int count;

    StreamedVectors(Stream in, Head head, int count) {
      this.in = in;
      this.head = head;
      this.count = count;
    }

    @Override
    public FloatVectorValues getFloatVectorValues(String field) {
      return new Floats(in, head.dim, count);
    }

    @Override
    public ByteVectorValues getByteVectorValues(String field) {
      return new Bytes(in, head.dim, count);
    }

    @Override
    public void checkIntegrity() {}

    @Override
    public void search(String field, float[] target, KnnCollector collector, Bits accepted) {
      throw notSearched();
    }

    @Override
    public void search(String field, byte[] target, KnnCollector collector, Bits accepted) {
      throw notSearched();
    }

    @Override
    public void close() {}

    @Override
    public long ramBytesUsed() {
      return 0;
    }
  }

  private static final class Floats extends FloatVectorValues {
    private final Stream in;
    private final int count;
    private final float[] value;
    private int doc = -1;

    Floats(Stream in, int dim, int count) {
      this.in = in;
      this.count = count;
      value = new float[dim];
    }

    @Override
    public int dimension() {
      return value.length;
    }

    @Override
    public int size() {
      return count;
    }

    @Override
    public float[] vectorValue() {
      return value;
    }

    @Override
    public int docID() {
      return doc;
    }

    @Override
    public int nextDoc() throws IOException {
      if (++doc >= count) {
        return doc = NO_MORE_DOCS;
      }
      in.readFloats(value);
      return doc;
    }

    @Override
    public int advance(int target) throws IOException {
      return slowAdvance(target);
    }

    @Override
    public VectorScorer scorer(float[] query) {
      throw notSearched();
    }
  }

  private static final class Bytes extends ByteVectorValues {
    private final Stream in;
    private final int count;
    private final byte[] value;
    private int doc = -1;

    Bytes(Stream in, int dim, int count) {
      this.in = in;
      this.count = count;
      value = new byte[dim];
    }

    @Override
    public int dimension() {
      return value.length;
    }

    @Override
    public int size() {
      return count;
    }

    @Override
    public byte[] vectorValue() {
      return value;
    }

    @Override
    public int docID() {
      return doc;
    }

    @Override
    public int nextDoc() throws IOException {
      if (++doc >= count) {
        return doc = NO_MORE_DOCS;
      }
      in.readBytes(value);
      return doc;
    }

    @Override
    public int advance(int target) throws IOException {
      return slowAdvance(target);
    }

    @Override
    public VectorScorer scorer(byte[] query) {
      throw notSearched();
    }
  }
}
