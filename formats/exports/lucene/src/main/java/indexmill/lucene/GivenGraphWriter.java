package indexmill.lucene;

import java.io.IOException;
import java.util.Arrays;
import org.apache.lucene.codecs.CodecUtil;
import org.apache.lucene.codecs.KnnFieldVectorsWriter;
import org.apache.lucene.codecs.KnnVectorsWriter;
import org.apache.lucene.codecs.hnsw.FlatVectorsWriter;
import org.apache.lucene.codecs.lucene99.Lucene99HnswVectorsFormat;
import org.apache.lucene.codecs.lucene99.Lucene99HnswVectorsReader;
import org.apache.lucene.index.FieldInfo;
import org.apache.lucene.index.IndexFileNames;
import org.apache.lucene.index.MergeState;
import org.apache.lucene.index.SegmentWriteState;
import org.apache.lucene.index.Sorter;
import org.apache.lucene.store.IndexOutput;
import org.apache.lucene.util.IOUtils;
import org.apache.lucene.util.packed.DirectMonotonicWriter;

/**
 * Writes .vex and .vem as {@link Lucene99HnswVectorsFormat} specifies them, from neighbour lists of the stream; vectors
 * are written by Lucene's own writer.
 *
 * <p>Level 0 has all vertices with their lists; level 1 has one, without neighbours: the vertex where searches start. A
 * graph of one level would start at vertex 0. Lists are sorted by vertex, which the format's differences ask for.
 *
 * <p>Memory: 2 bytes a vertex, and a list.
 */
final class GivenGraphWriter extends KnnVectorsWriter {
  private static final int BLOCK_SHIFT = 16;
  private static final int LEVELS = 2;

  private final FlatVectorsWriter vectors;
  private final Stream in;
  private final Head head;
  private IndexOutput graph;
  private IndexOutput meta;

  GivenGraphWriter(SegmentWriteState state, FlatVectorsWriter vectors, Stream in, Head head) throws IOException {
    this.vectors = vectors;
    this.in = in;
    this.head = head;
    boolean success = false;
    try {
      graph = open(state, "vex", "Lucene99HnswVectorsFormatIndex");
      meta = open(state, "vem", "Lucene99HnswVectorsFormatMeta");
      success = true;
    } finally {
      if (success == false) {
        IOUtils.closeWhileHandlingException(this);
      }
    }
  }

  private static IndexOutput open(SegmentWriteState state, String extension, String name) throws IOException {
    String file = IndexFileNames.segmentFileName(state.segmentInfo.name, state.segmentSuffix, extension);
    IndexOutput output = state.directory.createOutput(file, state.context);
    CodecUtil.writeIndexHeader(
        output, name, Lucene99HnswVectorsFormat.VERSION_CURRENT, state.segmentInfo.getId(), state.segmentSuffix);
    return output;
  }

  @Override
  public void mergeOneField(FieldInfo field, MergeState state) throws IOException {
    vectors.mergeOneField(field, state);
    long begin = graph.getFilePointer();
    char[] listBytes = writeLists();
    long length = graph.getFilePointer() - begin;
    meta.writeInt(field.number);
    meta.writeInt(field.getVectorEncoding().ordinal());
    meta.writeInt(Lucene99HnswVectorsReader.SIMILARITY_FUNCTIONS.indexOf(field.getVectorSimilarityFunction()));
    meta.writeVLong(begin);
    meta.writeVLong(length);
    meta.writeVInt(head.dim);
    meta.writeInt(head.count);
    meta.writeVInt((head.maxDegree + 1) / 2); // M: a list of level 0 has room for 2 M
    meta.writeVInt(LEVELS);
    meta.writeVInt(1); // vertices of level 1
    meta.writeVInt(head.entry);
    writeOffsets(listBytes);
  }

  /** Writes all lists of level 0, then the empty one of level 1; returns how many bytes each list takes. */
  private char[] writeLists() throws IOException {
    char[] listBytes = new char[head.count];
    int[] list = new int[head.maxDegree];
    for (int vertex = 0; vertex < head.count; vertex++) {
      long begin = graph.getFilePointer();
      int degree = in.readInt();
      if (degree < 0 || degree > head.maxDegree) {
        throw new IOException("vertex " + vertex + ": " + degree + " neighbours, expected up to " + head.maxDegree);
      }
      for (int i = 0; i < degree; i++) {
        list[i] = in.readInt();
      }
      Arrays.sort(list, 0, degree);
      graph.writeVInt(degree);
      int before = 0;
      for (int i = 0; i < degree; i++) {
        if (list[i] < 0 || list[i] >= head.count) {
          throw new IOException("vertex " + vertex + ": neighbour " + list[i] + " of " + head.count + " vertices");
        }
        graph.writeVInt(list[i] - before);
        before = list[i];
      }
      listBytes[vertex] = (char) (graph.getFilePointer() - begin);
    }
    graph.writeVInt(0);
    return listBytes;
  }

  private void writeOffsets(char[] listBytes) throws IOException {
    long begin = graph.getFilePointer();
    meta.writeLong(begin);
    meta.writeVInt(BLOCK_SHIFT);
    var offsets = DirectMonotonicWriter.getInstance(meta, graph, head.count + 1L, BLOCK_SHIFT);
    long offset = 0;
    for (char bytes : listBytes) {
      offsets.add(offset);
      offset += bytes;
    }
    offsets.add(offset);
    offsets.finish();
    meta.writeLong(graph.getFilePointer() - begin);
  }

  @Override
  public void finish() throws IOException {
    vectors.finish();
    meta.writeInt(-1); // no more fields
    CodecUtil.writeFooter(meta);
    CodecUtil.writeFooter(graph);
  }

  @Override
  public KnnFieldVectorsWriter<?> addField(FieldInfo field) {
    throw new UnsupportedOperationException("vectors come with a merge");
  }

  @Override
  public void flush(int maxDoc, Sorter.DocMap sortMap) {
    throw new UnsupportedOperationException("vectors come with a merge");
  }

  @Override
  public long ramBytesUsed() {
    return vectors.ramBytesUsed();
  }

  @Override
  public void close() throws IOException {
    IOUtils.close(graph, meta, vectors);
  }
}
