package tableside.state;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
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
 * when there is no room. Each is a file without a name: nothing is left of it when the JVM ends, however it ends. Where
 * nothing can be written nothing is, for a while; what was written before stays.
 *
 * <p>Thread-safe.
 */
final class LocalDisk implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(LocalDisk.class);
  private static final long SEGMENT_BYTES_MAX = 128 << 20;
  private static final int SEGMENTS_LEAST = 8;
  private static final long FREE_BYTES_LEAST = 1L << 30;
  private static final Duration PAUSE = Duration.ofMinutes(1);

  /** Gives a file for each segment, if there is room for one. */
  interface FileSource {
    RandomAccessFile next() throws IOException;
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

  private final FileSource files;
  private final long pauseNs;
  private final Map<Integer, Copy> copies = new HashMap<>();
  private final Deque<Segment> segments = new ArrayDeque<>();
  private Segment open;
  private long bytesMax;
  private long bytes;
  private long pausedSince;
  private boolean paused;

  /**
   * @param bytesMax of all segments; with 0 nothing is kept
   * @param pause how long nothing is written after that has failed
   */
  LocalDisk(FileSource files, long bytesMax, Duration pause) {
    this.files = files;
    this.bytesMax = bytesMax;
    this.pauseNs = pause.toNanos();
  }

  /** In Spark's local directory; nowhere if what Spark has there is to be encrypted, which this is not. */
  static LocalDisk ofSpark(SparkConf conf, long bytesMax) {
    boolean encrypted = conf.getBoolean("spark.io.encryption.enabled", false);
    return new LocalDisk(
        () -> nameless(withFree(FREE_BYTES_LEAST, Path.of(Utils.getLocalDir(conf)))), encrypted ? 0 : bytesMax, PAUSE);
  }

  /** A file that is gone when it is closed. */
  static RandomAccessFile nameless(Path directory) throws IOException {
    Path path = Files.createTempFile(directory, "tableside-state-", null);
    try {
      return new RandomAccessFile(path.toFile(), "rw");
    } finally {
      Files.delete(path);
    }
  }

  /** The directory. @throws IOException if fewer bytes are free on its disk: others need it too */
  static Path withFree(long bytesLeast, Path directory) throws IOException {
    long free = directory.toFile().getUsableSpace(); // a FileStore has to find the mount, which a chroot may hide
    if (free < bytesLeast) {
      throw new IOException("the disk with " + directory + " has " + free + " bytes free, of " + bytesLeast);
    }
    return directory;
  }

  /** Keep a copy of a block's first `length` bytes, if there is room for it at all. */
  synchronized void put(int number, byte[] block, int length) {
    if (bytesMax == 0 || length > bytesMax || copies.containsKey(number) || isPaused()) {
      return;
    }
    try {
      Segment segment = withRoom(length);
      segment.file.seek(segment.used);
      segment.file.write(block, 0, length);
      segment.blocks.add(number);
      copies.put(number, new Copy(segment, segment.used, length, checksum(block, length)));
      segment.used += length;
      bytes += length;
    } catch (Exception error) { // whatever it is: it is only a copy
      LOG.warn("the local disk is not written to for a while: {}", error.toString());
      pause();
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

  /** Give up some blocks. What is put next is not put beside them, so that their room is given back soon. */
  synchronized void forget(Collection<Integer> numbers) {
    for (int number : numbers) {
      Copy copy = copies.remove(number);
      if (copy != null) {
        Segment segment = copy.segment;
        segment.blocks.remove(number);
        if (segment == open) {
          open = null;
        }
        if (segment.blocks.isEmpty()) {
          drop(segment);
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

  private void pause() {
    if (open != null && open.blocks.isEmpty()) {
      drop(open);
    }
    open = null;
    paused = true;
    pausedSince = System.nanoTime();
  }

  private boolean isPaused() {
    paused = paused && System.nanoTime() - pausedSince < pauseNs;
    return paused;
  }

  private Segment withRoom(int length) throws IOException {
    while (bytes + length > bytesMax) {
      drop(segments.peekFirst());
    }
    long segmentBytesMax = Math.min(SEGMENT_BYTES_MAX, bytesMax / SEGMENTS_LEAST);
    if (open == null || (open.used > 0 && open.used + length > segmentBytesMax)) {
      open = new Segment(files.next());
      segments.addLast(open);
    }
    return open;
  }

  private void drop(Segment segment) {
    if (!segments.remove(segment)) {
      return;
    }
    if (segment == open) {
      open = null;
    }
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
