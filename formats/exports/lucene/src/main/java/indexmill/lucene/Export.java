package indexmill.lucene;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.codecs.KnnVectorsFormat;
import org.apache.lucene.codecs.lucene99.Lucene99HnswVectorsFormat;
import org.apache.lucene.index.CodecReader;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.NoMergePolicy;
import org.apache.lucene.index.SerialMergeScheduler;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.store.NoLockFactory;
import org.apache.lucene.util.BitUtil;

/**
 * Makes an index of Lucene 9.12 from the stream on standard input: {@code java -jar indexmill-lucene.jar OUT SEED}.
 *
 * <p>Documents become segments first, in a directory of their own beside OUT; then these are merged into the one segment
 * of OUT, and vectors and neighbour lists go from the stream into it. SEED, hexadecimal, takes the place of the random
 * numbers that Lucene marks its files with.
 */
public final class Export {
  private Export() {}

  public static void main(String[] args) {
    if (args.length != 2) {
      System.err.println("usage: java -jar indexmill-lucene.jar OUT SEED < STREAM");
      System.exit(2);
    }
    try {
      fixRandomness(args[1]);
      run(Path.of(args[0]), new Stream(System.in));
    } catch (IOException | RuntimeException | OutOfMemoryError failed) {
      System.err.println(failed);
      System.exit(1);
    }
  }

  /** Lucene's ids of segments and commits follow this property; the byte order that tests vary with it does not. */
  private static void fixRandomness(String seed) {
    if (BitUtil.NATIVE_BYTE_ORDER != null) {
      System.setProperty("tests.seed", seed);
    }
  }

  private static void run(Path out, Stream in) throws IOException {
    var head = new Head(in);
    Path scratch = out.resolveSibling(out.getFileName() + ".documents");
    try (Directory documents = FSDirectory.open(scratch, NoLockFactory.INSTANCE)) {
      Documents.write(in, head, documents);
      try (var reader = DirectoryReader.open(documents);
          Directory index = FSDirectory.open(out, NoLockFactory.INSTANCE)) {
        merge(reader, in, head, index);
      }
      for (String name : documents.listAll()) {
        documents.deleteFile(name);
      }
    }
    Files.delete(scratch);
    if (in.readInt() != Head.MAGIC) {
      throw new IOException("byte " + in.taken() + " of the stream: the mark of its end is missing");
    }
  }

  private static void merge(DirectoryReader documents, Stream in, Head head, Directory to) throws IOException {
    List<CodecReader> segments = new ArrayList<>();
    for (LeafReaderContext leaf : documents.leaves()) {
      segments.add(new WithVectors((CodecReader) leaf.reader(), in, head));
    }
    KnnVectorsFormat vectors = head.hasGraph ? new GivenGraph(in, head) : new Lucene99HnswVectorsFormat();
    var config = new IndexWriterConfig(null).setCodec(new RepeatableCodec(vectors)).setUseCompoundFile(false)
        .setMergePolicy(NoMergePolicy.INSTANCE).setMergeScheduler(new SerialMergeScheduler());
    try (var writer = new IndexWriter(to, config)) {
      writer.addIndexes(segments.toArray(new CodecReader[0]));
      writer.commit();
    }
  }
}
