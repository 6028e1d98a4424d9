package tableside.state;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.zip.CRC32C;
import org.apache.spark.io.CompressionCodec;

/**
 * Writes a delta or a snapshot as chunks, each a record below the store's limit.
 *
 * <p>Chunks are sent a group at a time, and a group not before the one before it was acknowledged. So of what an attempt
 * left behind nothing comes after a group that is absent as a whole: that is how cleaning finds it without a scan.
 */
final class ChunkWriter {
  /** Chunks in a group. */
  static final int GROUP = 16;

  /** Of a block that will be read for one value. */
  private static final int FETCHED_BYTES_MAX = 32 << 10;

  private final StateLog log;
  private final String chunks;
  private final long version;
  private final CompressionCodec codec;
  private final Blocks blocks;
  private final int chunkBytesMax;
  private final Block block;
  private final List<Operation> group = new ArrayList<>();
  private CompletableFuture<List<Outcome>> sent = CompletableFuture.completedFuture(List.of());
  private int number;
  private int count;
  private long bytes;

  /** @param blocks gives numbers to the blocks; null where all values are kept in memory */
  ChunkWriter(StateLog log, long version, String chunks, Blocks blocks) {
    this.log = log;
    this.version = version;
    this.chunks = chunks;
    this.codec = log.codec(log.codecName());
    this.blocks = blocks;
    this.chunkBytesMax = log.settings().chunkBytesMax();
    this.block = new Block(blockBytesMax());
  }

  /** Append a record, removed where its value's length is -1; returns where its value is. */
  long add(Object keyBase, long keyOffset, int keyLength, Object valueBase, long valueOffset, int valueLength)
      throws IOException, InterruptedException {
    if (!block.isEmpty() && !block.fits(keyLength, valueLength, blockBytesMax())) {
      endBlock();
    }
    if (block.isEmpty() && blocks != null) {
      number = blocks.add(new Blocks.Address(version, chunks, count, log.codecName()));
    }
    int offset = block.add(keyBase, keyOffset, keyLength, valueBase, valueOffset, valueLength);
    return blocks == null ? 0 : Blocks.location(number, offset);
  }

  /** Write what is left, and wait until all is acknowledged; returns the number of chunks. */
  int finish() throws IOException, InterruptedException {
    if (!block.isEmpty()) {
      endBlock();
    }
    send();
    log.await(sent);
    return count;
  }

  /** Compressed bytes written. */
  long bytes() {
    return bytes;
  }

  /** A little less than a chunk, so that what cannot be compressed is still one chunk. */
  private int blockBytesMax() {
    int whole = chunkBytesMax - chunkBytesMax / 16;
    return blocks == null ? whole : Math.min(whole, FETCHED_BYTES_MAX);
  }

  private void endBlock() throws IOException, InterruptedException {
    if (blocks != null) {
      block.copyTo(blocks, number);
    }
    byte[] compressed = block.compressed(codec);
    block.clear();
    for (int at = 0; at < compressed.length; at += chunkBytesMax) {
      int end = Math.min(at + chunkBytesMax, compressed.length);
      byte[] data = at == 0 && end == compressed.length ? compressed : Arrays.copyOfRange(compressed, at, end);
      append(data, end < compressed.length);
    }
  }

  private void append(byte[] data, boolean more) throws IOException, InterruptedException {
    group.add(new Operation.Put(log.place().chunk(chunks, count++), chunk(data, more), false, null));
    bytes += data.length;
    log.meter().chunksWritten.increment();
    if (group.size() == GROUP) {
      send();
    }
  }

  private void send() throws IOException, InterruptedException {
    log.await(sent);
    sent = log.begin(List.copyOf(group));
    group.clear();
  }

  private static ObjectNode chunk(byte[] data, boolean more) {
    CRC32C checksum = new CRC32C();
    checksum.update(data);
    ObjectNode chunk = JsonNodeFactory.instance.objectNode().put("data", data).put("crc", checksum.getValue());
    return more ? chunk.put("more", true) : chunk;
  }
}
