package indexmill.lucene;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.channels.ReadableByteChannel;
import java.nio.charset.StandardCharsets;

/** Little-endian numbers and bytes, one after the other. Memory: 1 MiB. */
final class Stream {
  private final ReadableByteChannel in;
  private final ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 20).order(ByteOrder.LITTLE_ENDIAN);
  private long taken;

  Stream(InputStream in) {
    this.in = Channels.newChannel(in);
    buffer.flip();
  }

  int readInt() throws IOException {
    need(Integer.BYTES);
    return buffer.getInt();
  }

  String readString() throws IOException {
    return new String(readBytes(), StandardCharsets.UTF_8);
  }

  /** An i32 length and as many bytes; null for length -1. */
  byte[] readBytes() throws IOException {
    int length = readInt();
    if (length == -1) {
      return null;
    }
    if (length < 0) {
      throw new IOException("byte " + taken() + " of the stream: a length of " + length);
    }
    byte[] bytes = new byte[length];
    readBytes(bytes);
    return bytes;
  }

  void readBytes(byte[] into) throws IOException {
    for (int done = 0; done < into.length; ) {
      need(1);
      int step = Math.min(into.length - done, buffer.remaining());
      buffer.get(into, done, step);
      done += step;
    }
  }

  void readFloats(float[] into) throws IOException {
    for (int done = 0; done < into.length; ) {
      need(Float.BYTES);
      int step = Math.min(into.length - done, buffer.remaining() / Float.BYTES);
      buffer.asFloatBuffer().get(into, done, step);
      buffer.position(buffer.position() + step * Float.BYTES);
      done += step;
    }
  }

  /** Position of the next byte. */
  long taken() {
    return taken - buffer.remaining();
  }

  private void need(int bytes) throws IOException {
    if (buffer.remaining() >= bytes) {
      return;
    }
    buffer.compact();
    while (buffer.position() < bytes) {
      int got = in.read(buffer);
      if (got < 0) {
        throw new EOFException("the stream ends after " + taken + " bytes, before the index is whole");
      }
      taken += got;
    }
    buffer.flip();
  }
}
