package tableside.state.log;

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
 * A cache of blocks on the executor's local disk. A block that is missing or damaged here is read from the table.
 *
 * <p>Blocks are appended to segments. A segment is dropped when none of its blocks is needed any more; the oldest
 * segment is dropped when space runs out. Each segment is an unlinked file, so that nothing remains when the JVM ends,
 * even after a crash. After a failed write, the cache accepts no blocks for a while; earlier blocks remain readable.
 *
 * <p>Thread-safe.
 */
public final class LocalDisk implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(LocalDisk.class);
  private static final long SEGMENT_BYTES_MAX = 128 << 20;
  private static final int SEGMENTS_MIN = 8;
  private static final long FREE_BYTES_MIN = 1L << 30;
  private static final Duration PAUSE = Duration.ofMinutes(1);

  /** Opens the file of a new segment, or fails if the disk has too little space. */
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
   * @param bytesMax the limit of all segments together; 0 disables the cache
   * @param pause how long nothing is written after a failed write
   */
  LocalDisk(FileSource files, long bytesMax, Duration pause) {
    this.files = files;
    this.bytesMax = bytesMax;
    this.pauseNs = pause.toNanos();
  }

  /**
   * Creates a cache in Spark's local directory. It is disabled if Spark must encrypt local data, because the cache does
   * not.
   */
  public static LocalDisk inSparkDirectory(SparkConf conf, long bytesMax) {
    boolean encrypted = conf.getBoolean("spark.io.encryption.enabled", false);
    return new LocalDisk(
        () -> unlinkedFile(requireFreeSpace(FREE_BYTES_MIN, Path.of(Utils.getLocalDir(conf)))),
        encrypted ? 0 : bytesMax,
        PAUSE);
  }

  /** Opens a file without a name, whose space is freed when it is closed. */
  static RandomAccessFile unlinkedFile(Path directory) throws IOException {
    Path path = Files.createTempFile(directory, "tableside-state-", null);
    try {
      return new RandomAccessFile(path.toFile(), "rw");
    } finally {
      Files.delete(path);
    }
  }

  /** Returns the directory. @throws IOException if its disk has less free space, which other processes need too */
  static Path requireFreeSpace(long bytesMin, Path directory) throws IOException {
    long free = directory.toFile().getUsableSpace(); // a FileStore has to find the mount, which a chroot may hide
    if (free < bytesMin) {
      throw new IOException("the disk with " + directory + " has " + free + " bytes free, and needs " + bytesMin);
    }
    return directory;
  }

  /** Caches a block's first `length` bytes, unless they exceed the limit of the whole cache. */
  synchronized void put(int number, byte[] block, int length) {
    if (bytesMax == 0 || length > bytesMax || copies.containsKey(number) || isPaused()) {
      return;
    }
    try {
      Segment segment = segmentWithRoom(length);
      segment.file.seek(segment.used);
      segment.file.write(block, 0, length);
      segment.blocks.add(number);
      copies.put(number, new Copy(segment, segment.used, length, checksum(block, length)));
      segment.used += length;
      bytes += length;
    } catch (Exception error) { // any failure is harmless: the table has the block
      LOG.warn("writing to the local disk is paused: {}", error.toString());
      pause();
    }
  }

  /** Returns a block, or null if there is no intact copy. */
  public synchronized byte[] get(int number) {
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
      LOG.warn("a block on the local disk is damaged; reading it from the table");
    } catch (IOException error) {
      LOG.warn("cannot read a block on the local disk; reading it from the table", error);
    }
    drop(copy.segment);
    return null;
  }

  /** Drops some blocks. Later blocks go to a new segment, so that the space of this one is freed soon. */
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

  /** Frees the disk space and disables the cache. */
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

  private Segment segmentWithRoom(int length) throws IOException {
    while (bytes + length > bytesMax) {
      drop(segments.peekFirst());
    }
    long segmentBytesMax = Math.min(SEGMENT_BYTES_MAX, bytesMax / SEGMENTS_MIN);
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
      LOG.warn("cannot close a file on the local disk", error);
    }
  }

  private static long checksum(byte[] block, int length) {
    CRC32C checksum = new CRC32C();
    checksum.update(block, 0, length);
    return checksum.getValue();
  }
}
