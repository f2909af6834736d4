package indexmill.lucene;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.index.VectorEncoding;
import org.apache.lucene.index.VectorSimilarityFunction;

/** What stands first in the stream: everything that is not one a vector. docs/formats/lucene.md has every field. */
final class Head {
  static final int MAGIC = 0x4C584D49; // "IMXL"
  static final int VERSION = 1;

  /** What the values of a column become. */
  enum Kind {
    LONG,
    DOUBLE,
    TEXT,
    BYTES
  }

  static final class Column {
    final String name;
    final Kind kind;

    Column(String name, Kind kind) {
      this.name = name;
      this.kind = kind;
    }
  }

  final int count;
  final int dim;
  final VectorEncoding encoding;
  final VectorSimilarityFunction similarity;
  /** Whether neighbour lists follow; without them Lucene builds a graph. */
  final boolean hasGraph;
  /** Vertex where searches start. */
  final int entry;
  final int maxDegree;
  final List<Column> columns = new ArrayList<>();

  Head(Stream in) throws IOException {
    int magic = in.readInt();
    int version = in.readInt();
    if (magic != MAGIC || version != VERSION) {
      throw new IOException(
          String.format("the stream begins with %08x, version %d; this exporter reads %08x, version %d: build the jar again",
              magic, version, MAGIC, VERSION));
    }
    count = in.readInt();
    dim = in.readInt();
    encoding = VectorEncoding.values()[in.readInt()];
    similarity = VectorSimilarityFunction.values()[in.readInt()];
    hasGraph = in.readInt() == 1;
    entry = in.readInt();
    maxDegree = in.readInt();
    int columnCount = in.readInt();
    for (int i = 0; i < columnCount; i++) {
      Kind kind = Kind.values()[in.readInt()];
      columns.add(new Column(in.readString(), kind));
    }
  }
}
