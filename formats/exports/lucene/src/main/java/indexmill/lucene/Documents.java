package indexmill.lucene;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.DoubleField;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.LongField;
import org.apache.lucene.document.NumericDocValuesField;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.NoMergePolicy;
import org.apache.lucene.index.SerialMergeScheduler;
import org.apache.lucene.store.Directory;
import org.apache.lucene.util.BytesRef;

/**
 * Documents of all slots, in their order, without vectors: ids and metadata, stored and indexed. Text longer than a term
 * may be is stored whole and found by its beginning.
 */
final class Documents {
  /** Heap that documents take before they are flushed to a segment. */
  private static final double BUFFER_MIB = 16;

  private Documents() {}

  static void write(Stream in, Head head, Directory to) throws IOException {
    var config = new IndexWriterConfig(null).setRAMBufferSizeMB(BUFFER_MIB).setUseCompoundFile(false)
        .setMergePolicy(NoMergePolicy.INSTANCE).setMergeScheduler(new SerialMergeScheduler());
    try (var writer = new IndexWriter(to, config)) {
      for (int slot = 0; slot < head.count; slot++) {
        var document = new Document();
        document.add(new NumericDocValuesField("slot", slot));
        for (var column : head.columns) {
          byte[] value = in.readBytes();
          if (value != null) {
            add(document, column, value);
          }
        }
        writer.addDocument(document);
      }
    }
  }

  private static void add(Document document, Head.Column column, byte[] value) {
    switch (column.kind) {
      case LONG:
        document.add(new LongField(column.name, number(value).getLong(), Field.Store.YES));
        break;
      case DOUBLE:
        document.add(new DoubleField(column.name, number(value).getDouble(), Field.Store.YES));
        break;
      case TEXT:
        var term = new BytesRef(value, 0, Math.min(value.length, IndexWriter.MAX_TERM_LENGTH));
        document.add(new StringField(column.name, term, Field.Store.NO));
        document.add(new StoredField(column.name, new String(value, StandardCharsets.UTF_8)));
        break;
      case BYTES:
        document.add(new StringField(column.name, new BytesRef(value), Field.Store.YES));
        break;
    }
  }

  private static ByteBuffer number(byte[] value) {
    return ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
  }
}
