package indexmill.lucene;

import java.io.IOException;
import org.apache.lucene.codecs.KnnVectorsFormat;
import org.apache.lucene.codecs.KnnVectorsReader;
import org.apache.lucene.codecs.KnnVectorsWriter;
import org.apache.lucene.codecs.hnsw.FlatVectorScorerUtil;
import org.apache.lucene.codecs.hnsw.FlatVectorsFormat;
import org.apache.lucene.codecs.lucene99.Lucene99FlatVectorsFormat;
import org.apache.lucene.codecs.lucene99.Lucene99HnswVectorsReader;
import org.apache.lucene.index.SegmentReadState;
import org.apache.lucene.index.SegmentWriteState;

/**
 * Lucene's own format of vectors and graphs, under its own name, except that the graph comes from the stream. It is
 * known to nobody but this exporter: readers find {@code Lucene99HnswVectorsFormat} in the segment and use that.
 */
final class GivenGraph extends KnnVectorsFormat {
  private final FlatVectorsFormat flat =
      new Lucene99FlatVectorsFormat(FlatVectorScorerUtil.getLucene99FlatVectorsScorer());
  private final Stream in;
  private final Head head;

  GivenGraph(Stream in, Head head) {
    super("Lucene99HnswVectorsFormat");
    this.in = in;
    this.head = head;
  }

  @Override
  public KnnVectorsWriter fieldsWriter(SegmentWriteState state) throws IOException {
    return new GivenGraphWriter(state, flat.fieldsWriter(state), in, head);
  }

  @Override
  public KnnVectorsReader fieldsReader(SegmentReadState state) throws IOException {
    return new Lucene99HnswVectorsReader(state, flat.fieldsReader(state));
  }
}
