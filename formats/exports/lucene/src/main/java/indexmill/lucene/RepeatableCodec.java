package indexmill.lucene;

import java.io.IOException;
import java.util.Map;
import org.apache.lucene.codecs.FilterCodec;
import org.apache.lucene.codecs.KnnVectorsFormat;
import org.apache.lucene.codecs.SegmentInfoFormat;
import org.apache.lucene.codecs.lucene912.Lucene912Codec;
import org.apache.lucene.index.SegmentInfo;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.IOContext;

/** Lucene 9.12's codec under its own name, with another writer of vectors, and without the date and machine in .si. */
final class RepeatableCodec extends FilterCodec {
  private static final Map<String, String> DIAGNOSTICS = Map.of("source", "indexmill");

  RepeatableCodec(KnnVectorsFormat vectors) {
    super("Lucene912", new Lucene912Codec() {
      @Override
      public KnnVectorsFormat getKnnVectorsFormatForField(String field) {
        return vectors;
      }
    });
  }

  @Override
  public SegmentInfoFormat segmentInfoFormat() {
    SegmentInfoFormat theirs = super.segmentInfoFormat();
    return new SegmentInfoFormat() {
      @Override
      public SegmentInfo read(Directory from, String segment, byte[] id, IOContext context) throws IOException {
        return theirs.read(from, segment, id, context);
      }

      @Override
      public void write(Directory to, SegmentInfo info, IOContext context) throws IOException {
        var plain = new SegmentInfo(info.dir, info.getVersion(), info.getMinVersion(), info.name, info.maxDoc(),
            info.getUseCompoundFile(), info.getHasBlocks(), info.getCodec(), DIAGNOSTICS, info.getId(),
            info.getAttributes(), info.getIndexSort());
        plain.setFiles(info.files());
        theirs.write(to, plain, context);
        info.setFiles(plain.files());
      }
    };
  }
}
