package tableside.state;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.zip.CRC32C;
import org.apache.spark.SparkConf;
import org.apache.spark.util.Utils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Copies of the blocks that were written and read, on the executor's local disk: what is wanted again need not be asked
 * of the table. What is not here, or is not as it was, is simply read from the table again.
 *
 * <p>Blocks follow one another in segments. A segment goes when none of its blocks is needed any more, and the oldest
 * when there is no room. Each is a file without a name: nothing is left of it when the JVM ends, however it ends.
 *
 * <p>Thread-safe.
 */
final class LocalDisk implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(LocalDisk.class);
  private static final long SEGMENT_BYTES_MAX = 16 << 20;
  private static final int SEGMENTS_LEAST = 8;

  /** Where there is room; asked for each segment. */
  interface Directory {
    Path path() throws IOException;
  }

  private record Copy(Segment segment, long offset, int length, long checksum) {}

  private static final class Segment {
    private final RandomAccessFile file;
    private final Set<Integer> blocks = new HashSet<>();
    private long used;

    private Segment(RandomAccessFile file) {
      this.file = file;
    }
  }

  private final Directory directory;
  private final Map<Integer, Copy> copies = new HashMap<>();
  private final Deque<Segment> segments = new ArrayDeque<>();
  private long bytesMax;
  private long bytes;

  /** @param bytesMax of all segments; with 0 nothing is kept */
  LocalDisk(Directory directory, long bytesMax) {
    this.directory = directory;
    this.bytesMax = bytesMax;
  }

  /** Below Spark's local directory; nowhere if what Spark has there is to be encrypted, which this is not. */
  static LocalDisk ofSpark(SparkConf conf, long bytesMax) {
    boolean encrypted = conf.getBoolean("spark.io.encryption.enabled", false);
    return new LocalDisk(() -> Path.of(Utils.getLocalDir(conf)), encrypted ? 0 : bytesMax);
  }

  /** Keep a copy of a block's first `length` bytes, if there is room for it at all. */
  synchronized void put(int number, byte[] block, int length) {
    if (bytesMax == 0 || length > bytesMax || copies.containsKey(number)) {
      return;
    }
    try {
      Segment segment = withRoom(length);
      segment.file.seek(segment.used);
      segment.file.write(block, 0, length);
      copies.put(number, new Copy(segment, segment.used, length, checksum(block, length)));
      segment.blocks.add(number);
      segment.used += length;
      bytes += length;
    } catch (IOException error) {
      LOG.warn("the local disk cannot be written to: values that are not in memory are read from the table", error);
      close();
    }
  }

  /** A block, or null if it has no sound copy here. */
  synchronized byte[] get(int number) {
    Copy copy = copies.get(number);
    if (copy == null) {
      return null;
    }
    try {
      byte[] block = new byte[copy.length];
      copy.segment.file.seek(copy.offset);
      copy.segment.file.readFully(block);
      if (checksum(block, copy.length) == copy.checksum) {
        return block;
      }
      LOG.warn("a block on the local disk is not what was written: it is read from the table");
    } catch (IOException error) {
      LOG.warn("a block on the local disk cannot be read: it is read from the table", error);
    }
    drop(copy.segment);
    return null;
  }

  synchronized void forget(Collection<Integer> numbers) {
    for (int number : numbers) {
      Copy copy = copies.remove(number);
      if (copy != null) {
        copy.segment.blocks.remove(number);
        if (copy.segment.blocks.isEmpty()) {
          drop(copy.segment);
        }
      }
    }
  }

  /** Give back the disk, and keep nothing from now on. */
  @Override
  public synchronized void close() {
    bytesMax = 0;
    while (!segments.isEmpty()) {
      drop(segments.peekFirst());
    }
  }

  private Segment withRoom(int length) throws IOException {
    while (bytes + length > bytesMax) {
      drop(segments.peekFirst());
    }
    long segmentBytesMax = Math.min(SEGMENT_BYTES_MAX, bytesMax / SEGMENTS_LEAST);
    Segment last = segments.peekLast();
    if (last == null || (last.used > 0 && last.used + length > segmentBytesMax)) {
      last = new Segment(nameless());
      segments.addLast(last);
    }
    return last;
  }

  private RandomAccessFile nameless() throws IOException {
    Path path = Files.createTempFile(directory.path(), "tableside-state-", null);
    try {
      return new RandomAccessFile(path.toFile(), "rw");
    } finally {
      Files.delete(path);
    }
  }

  private void drop(Segment segment) {
    segments.remove(segment);
    copies.keySet().removeAll(segment.blocks);
    bytes -= segment.used;
    try {
      segment.file.close();
    } catch (IOException error) {
      LOG.warn("a file on the local disk cannot be closed", error);
    }
  }

  private static long checksum(byte[] block, int length) {
    CRC32C checksum = new CRC32C();
    checksum.update(block, 0, length);
    return checksum.getValue();
  }
}
