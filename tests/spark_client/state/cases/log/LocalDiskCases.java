package tableside.state.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import tableside.state.Check;

/** Blocks on the local disk are read back unchanged, or not at all. */
public final class LocalDiskCases {
  private LocalDiskCases() {}

  public static void blocksAreReadBack(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 1 << 20)) {
      for (int number = 1; number <= 50; number++) {
        disk.put(number, block(number, 100), 100);
      }
      disk.put(51, block(51, 100), 7); // only the first 7 bytes
      disk.put(1, block(2, 100), 100); // already present
      for (int number = 1; number <= 50; number++) {
        Check.that(Arrays.equals(disk.get(number), block(number, 100)), "block " + number + " is as it was");
      }
      Check.that(Arrays.equals(disk.get(51), Arrays.copyOf(block(51, 100), 7)), "so much of it as was given");
      Check.equal(disk.get(52), null);
      Check.equal(bytes(directory), 50L * 100 + 7);
    }
  }

  /** Also after the JVM is killed. Therefore the files have no names. */
  public static void noFilesRemain(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 1 << 20)) {
      disk.put(1, block(1, 100), 100);
      Check.equal(named(directory), 0L);
      Check.equal(opened(directory).size(), 1);
    }
    Check.equal(opened(directory).size(), 0);
  }

  public static void theOldestBlocksAreEvicted(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 1_000)) {
      for (int number = 1; number <= 100; number++) {
        disk.put(number, block(number, 60), 60);
        Check.that(bytes(directory) <= 1_000, "at most as many bytes as are allowed: " + bytes(directory));
        Check.that(Arrays.equals(disk.get(number), block(number, 60)), "the newest is there");
      }
      Check.equal(disk.get(1), null);
      Check.that(bytes(directory) > 800, "room is used: " + bytes(directory));
      disk.put(101, block(101, 1_001), 1_001);
      Check.equal(disk.get(101), null);
      Check.that(disk.get(100) != null, "a block that never fits evicts nothing");
      disk.put(102, block(102, 1_000), 1_000);
      Check.that(disk.get(102) != null && disk.get(100) == null, "a block that fits alone evicts all others");
    }
  }

  public static void forgottenBlocksFreeSpace(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 8_000)) {
      for (int number = 1; number <= 30; number++) {
        disk.put(number, block(number, 100), 100);
      }
      Check.equal(opened(directory).size(), 3);
      disk.forget(List.of(1, 2, 3, 4, 5, 6, 7, 8, 9, 99));
      Check.equal(opened(directory).size(), 3);
      Check.equal(disk.get(9), null);
      Check.that(disk.get(10) != null, "another of its segment is still there");
      disk.forget(List.of(10));
      Check.equal(opened(directory).size(), 2);
      Check.equal(bytes(directory), 2_000L);
      for (int number = 11; number <= 30; number++) {
        disk.forget(List.of(number));
      }
      Check.equal(bytes(directory), 0L);
      disk.put(1, block(1, 100), 100);
      Check.that(Arrays.equals(disk.get(1), block(1, 100)), "there is room again");
    }
  }

  /** A block that is put after others were forgotten does not retain their space. */
  public static void aSmallStoreTakesLittleSpace(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 1 << 30)) {
      for (int number = 1; number <= 1_000; number++) {
        disk.put(number, block(number, 1_000), 1_000);
        if (number % 10 == 0) {
          disk.forget(IntStream.range(1, number - 10).boxed().toList());
        }
        Check.that(bytes(directory) <= 40_000, "some twenty blocks are needed: " + bytes(directory));
      }
    }
  }

  public static void damagedBlocksAreAbsent(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 8_000)) {
      for (int number = 1; number <= 10; number++) {
        disk.put(number, block(number, 100), 100);
      }
      try (RandomAccessFile file = new RandomAccessFile(opened(directory).get(0).toFile(), "rw")) {
        file.seek(150);
        file.write(~block(2, 100)[50]);
      }
      for (int number = 11; number <= 15; number++) {
        disk.put(number, block(number, 100), 100);
      }
      Check.that(disk.get(1) != null, "another block of the file is sound");
      Check.equal(disk.get(2), null);
      Check.equal(disk.get(1), null); // a damaged file is no longer read
      Check.that(Arrays.equals(disk.get(11), block(11, 100)), "another file is sound");
      Check.equal(bytes(directory), 500L);
      disk.put(2, block(2, 100), 100);
      Check.that(Arrays.equals(disk.get(2), block(2, 100)), "it can be put again");
    }
  }

  public static void truncatedBlocksAreAbsent(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 8_000)) {
      disk.put(1, block(1, 100), 100);
      try (RandomAccessFile file = new RandomAccessFile(opened(directory).get(0).toFile(), "rw")) {
        file.setLength(99);
      }
      Check.equal(disk.get(1), null);
    }
  }

  /** Earlier blocks stay readable, and writing is tried again later. */
  public static void writingPausesAfterAFailure(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    List<LocalDisk.FileSource> failing =
        List.of(
            () -> LocalDisk.unlinkedFile(directory.resolve("missing")),
            () -> readOnly(directory),
            () -> {
              throw new IllegalStateException("no environment");
            });
    for (LocalDisk.FileSource fault : failing) {
      AtomicReference<LocalDisk.FileSource> present = new AtomicReference<>(() -> LocalDisk.unlinkedFile(directory));
      AtomicInteger tries = new AtomicInteger();
      LocalDisk.FileSource files = () -> {
        tries.incrementAndGet();
        return present.get().next();
      };
      try (LocalDisk disk = new LocalDisk(files, 8_000, Duration.ofSeconds(1))) {
        disk.put(1, block(1, 1_000), 1_000);
        present.set(fault);
        disk.put(2, block(2, 1_000), 1_000);
        disk.put(3, block(3, 1_000), 1_000);
        Check.equal(tries.get(), 2);
        Check.equal(opened(directory).size(), 1);
        Check.that(disk.get(1) != null && disk.get(2) == null && disk.get(3) == null, "only what was written is there");
        present.set(() -> LocalDisk.unlinkedFile(directory));
        Thread.sleep(1_100);
        disk.put(3, block(3, 1_000), 1_000);
        Check.that(disk.get(1) != null && disk.get(3) != null, "it is written to again");
      }
    }
  }

  private static RandomAccessFile readOnly(Path directory) throws IOException {
    Path path = Files.createTempFile(directory, "tableside-state-", null);
    try {
      return new RandomAccessFile(path.toFile(), "r");
    } finally {
      Files.delete(path);
    }
  }

  public static void aDiskThatIsNearlyFullIsNotUsed(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    Check.equal(LocalDisk.requireFreeSpace(0, directory), directory);
    Check.says(Check.fails(() -> LocalDisk.requireFreeSpace(Long.MAX_VALUE, directory)), "bytes free, and needs");
  }

  public static void aDiskThatIsClosedIsNotUsed(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    LocalDisk disk = disk(directory, 8_000);
    disk.put(1, block(1, 100), 100);
    disk.close();
    Check.equal(disk.get(1), null);
    disk.put(1, block(1, 100), 100);
    Check.equal(disk.get(1), null);
    Check.equal(opened(directory).size(), 0);
  }

  /** A task and maintenance read and write concurrently. */
  public static void manyThreadsMayUseIt(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 200_000)) {
      List<CompletableFuture<Integer>> threads = new ArrayList<>();
      for (int thread = 0; thread < 4; thread++) {
        int first = thread;
        threads.add(CompletableFuture.supplyAsync(() -> putAndGet(disk, first), command -> new Thread(command).start()));
      }
      for (CompletableFuture<Integer> thread : threads) {
        Check.that(thread.get() > 2_000, "most are there: " + thread.get());
      }
    }
  }

  private static int putAndGet(LocalDisk disk, int thread) {
    int found = 0;
    for (int round = 0; round < 3_000; round++) {
      int number = thread + 4 * round;
      disk.put(number, block(number, 500), 500);
      byte[] present = disk.get(number);
      Check.that(present == null || Arrays.equals(present, block(number, 500)), "block " + number + " is as it was");
      found += present == null ? 0 : 1;
      disk.forget(List.of(number - 80));
    }
    return found;
  }

  /** Spark interrupts tasks that it kills, while other tasks use the same store. */
  public static void anInterruptionDamagesNothing(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    try (LocalDisk disk = disk(directory, 8_000)) {
      Thread.currentThread().interrupt();
      disk.put(1, block(1, 100), 100);
      Check.that(disk.get(1) != null, "it is read");
      Check.that(Thread.interrupted(), "the thread is still interrupted");
      Check.that(disk.get(1) != null, "it is there for others");
    }
  }

  public static void nothingIsWrittenIfEncryptionIsOn(JsonNode arguments) throws Exception {
    Path directory = directory(arguments);
    SparkConf conf = new SparkConf(false).set("spark.local.dir", directory.toString());
    try (LocalDisk disk = LocalDisk.inSparkDirectory(conf.clone().set("spark.io.encryption.enabled", "true"), 8_000)) {
      disk.put(1, block(1, 100), 100);
      Check.equal(disk.get(1), null);
    }
    try (LocalDisk disk = LocalDisk.inSparkDirectory(conf, 8_000)) {
      disk.put(1, block(1, 100), 100);
      Check.that(disk.get(1) != null, "otherwise it is");
    }
  }

  /** The files without names that this process has open in the directory, found by their descriptors. */
  public static List<Path> opened(Path directory) throws IOException {
    try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
      return open.filter(each -> isIn(each, directory)).sorted().toList();
    }
  }

  /** The total size of these files. */
  public static long bytes(Path directory) throws IOException {
    long bytes = 0;
    for (Path file : opened(directory)) {
      bytes += Files.size(file);
    }
    return bytes;
  }

  private static boolean isIn(Path descriptor, Path directory) {
    try {
      return Files.readSymbolicLink(descriptor).toString().startsWith(directory + "/tableside-state-");
    } catch (IOException gone) {
      return false;
    }
  }

  private static LocalDisk disk(Path directory, long bytesMax) {
    return new LocalDisk(() -> LocalDisk.unlinkedFile(directory), bytesMax, Duration.ofMinutes(1));
  }

  private static Path directory(JsonNode arguments) {
    return Path.of(arguments.get("directory").asText());
  }

  private static long named(Path directory) throws IOException {
    try (Stream<Path> files = Files.list(directory)) {
      return files.count();
    }
  }

  private static byte[] block(int seed, int length) {
    byte[] block = new byte[length];
    new Random(seed).nextBytes(block);
    return block;
  }
}
