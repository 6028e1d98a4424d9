package tableside.state.log;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.SequenceInputStream;
import java.util.ArrayDeque;
import java.util.Enumeration;
import java.util.Queue;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.unsafe.Platform;

/** Compresses blocks to parts of a maximum size, and back. A long record exists as few times as possible meanwhile. */
final class CompressedBlock {
  private static final int COPY_BYTES = 1 << 16;

  private CompressedBlock() {}

  /** Compresses the first `length` bytes of a block. */
  static Queue<byte[]> of(byte[] block, int length, CompressionCodec codec, int partBytesMax) throws IOException {
    Parts parts = new Parts(partBytesMax);
    try (OutputStream stream = codec.compressedOutputStream(parts)) {
      stream.write(block, 0, length);
    }
    return parts.finish();
  }

  /** Compresses a block of one record, without a copy of it. A `valueLength` of -1 marks a removed record. */
  static Queue<byte[]> ofRecord(
      Object keyBase, long keyOffset, int keyLength, Object valueBase, long valueOffset, int valueLength,
      CompressionCodec codec, int partBytesMax)
      throws IOException {
    Parts parts = new Parts(partBytesMax);
    try (DataOutputStream stream = new DataOutputStream(codec.compressedOutputStream(parts))) {
      stream.writeInt(keyLength);
      copy(keyBase, keyOffset, keyLength, stream);
      stream.writeInt(valueLength);
      copy(valueBase, valueOffset, valueLength, stream);
    }
    return parts.finish();
  }

  /** Decompresses a block. Parts are removed from the queue as they are read. */
  static byte[] decompressed(Queue<byte[]> parts, CompressionCodec codec) throws IOException {
    try (InputStream stream = codec.compressedInputStream(new SequenceInputStream(streams(parts)))) {
      return stream.readAllBytes();
    }
  }

  private static void copy(Object base, long offset, int length, OutputStream stream) throws IOException {
    byte[] buffer = new byte[COPY_BYTES];
    for (int at = 0; at < length; at += COPY_BYTES) {
      int count = Math.min(COPY_BYTES, length - at);
      Platform.copyMemory(base, offset + at, buffer, Platform.BYTE_ARRAY_OFFSET, count);
      stream.write(buffer, 0, count);
    }
  }

  private static Enumeration<InputStream> streams(Queue<byte[]> parts) {
    return new Enumeration<>() {
      @Override
      public boolean hasMoreElements() {
        return !parts.isEmpty();
      }

      @Override
      public InputStream nextElement() {
        return new ByteArrayInputStream(parts.remove());
      }
    };
  }

  /** Cuts what is written to it. */
  private static final class Parts extends OutputStream {
    private final Queue<byte[]> finished = new ArrayDeque<>();
    private final ByteArrayOutputStream part = new ByteArrayOutputStream();
    private final int partBytesMax;

    Parts(int partBytesMax) {
      this.partBytesMax = partBytesMax;
    }

    @Override
    public void write(int oneByte) {
      write(new byte[] {(byte) oneByte}, 0, 1);
    }

    @Override
    public void write(byte[] source, int offset, int length) {
      for (int at = 0; at < length; ) {
        if (part.size() == partBytesMax) {
          cut();
        }
        int count = Math.min(length - at, partBytesMax - part.size());
        part.write(source, offset + at, count);
        at += count;
      }
    }

    Queue<byte[]> finish() {
      cut();
      return finished;
    }

    private void cut() {
      finished.add(part.toByteArray());
      part.reset();
    }
  }
}
