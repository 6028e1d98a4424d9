package tableside.state.log;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.zip.CRC32C;
import org.apache.spark.io.CompressionCodec;
import tableside.state.http.Operation;
import tableside.state.http.Outcome;

/**
 * Writes a delta or a snapshot as chunks, each a record below the store's size limit.
 *
 * <p>Chunks are sent in groups. A group is sent only after the previous one is acknowledged. After a group that is
 * completely absent, an interrupted attempt therefore left no further chunks, so that cleanup finds them without a
 * scan.
 */
public final class ChunkWriter {
  /** The number of chunks in a group. */
  static final int GROUP = 16;

  /** The size limit of blocks that are fetched to read a single value. */
  private static final int FETCHED_BLOCK_BYTES_MAX = 32 << 10;

  private final StateLog log;
  private final String chunks;
  private final long version;
  private final CompressionCodec codec;
  private final BlockIndex blocks;
  private final int chunkBytesMax;
  private final Block block;
  private final List<Operation> group = new ArrayList<>();
  private CompletableFuture<List<Outcome>> sent;
  private int number;
  private int count;
  private long bytes;

  /**
   * @param announced completes when the table has recorded the attempt, which must precede all its chunks
   * @param blocks numbers the blocks; null if all values are kept in memory
   */
  ChunkWriter(
      StateLog log, long version, String chunks, CompletableFuture<List<Outcome>> announced, BlockIndex blocks) {
    this.log = log;
    this.version = version;
    this.chunks = chunks;
    this.sent = announced;
    this.codec = log.codec(log.codecName());
    this.blocks = blocks;
    this.chunkBytesMax = log.settings().chunkBytesMax();
    this.block = new Block(blockBytesMax());
  }

  /** Appends a record and returns the location of its value. A `valueLength` of -1 marks a removed record. */
  public long add(Object keyBase, long keyOffset, int keyLength, Object valueBase, long valueOffset, int valueLength)
      throws IOException, InterruptedException {
    if (!block.isEmpty() && !block.fits(keyLength, valueLength, blockBytesMax())) {
      endBlock();
    }
    if (block.isEmpty() && blocks != null) {
      number = blocks.add(new BlockIndex.Address(version, chunks, count, log.codecName()));
    }
    if (!block.fits(keyLength, valueLength, chunkBytesMax)) { // a copy in the block would be long
      append(
          CompressedBlock.ofRecord(
              keyBase, keyOffset, keyLength, valueBase, valueOffset, valueLength, codec, chunkBytesMax));
      return blocks == null ? 0 : BlockIndex.location(number, Block.firstValueAt(keyLength));
    }
    int offset = block.add(keyBase, keyOffset, keyLength, valueBase, valueOffset, valueLength);
    return blocks == null ? 0 : BlockIndex.location(number, offset);
  }

  /** Writes the remaining records and waits until all chunks are acknowledged. Returns the number of chunks. */
  public int finish() throws IOException, InterruptedException {
    if (!block.isEmpty()) {
      endBlock();
    }
    send();
    log.await(sent);
    return count;
  }

  /** Declares that a version contains the delta. */
  public void commit() {
    if (blocks != null) {
      blocks.commit(chunks);
    }
  }

  /** Stops writing a delta that no version will contain. */
  public void discard() {
    sent.cancel(true);
    if (blocks != null) {
      blocks.discard(chunks);
    }
  }

  /** The number of compressed bytes written. */
  public long bytes() {
    return bytes;
  }

  /** A little less than a chunk, so that an incompressible block still fits into one chunk. */
  private int blockBytesMax() {
    int whole = chunkBytesMax - chunkBytesMax / 16;
    return blocks == null ? whole : Math.min(whole, FETCHED_BLOCK_BYTES_MAX);
  }

  private void endBlock() throws IOException, InterruptedException {
    if (blocks != null) {
      block.copyTo(blocks, number);
    }
    append(block.compressed(codec, chunkBytesMax));
    block.clear();
  }

  private void append(Queue<byte[]> parts) throws IOException, InterruptedException {
    while (!parts.isEmpty()) {
      byte[] data = parts.remove();
      append(data, !parts.isEmpty());
    }
  }

  private void append(byte[] data, boolean more) throws IOException, InterruptedException {
    group.add(new Operation.Put(log.keys().chunk(chunks, count++), chunk(data, more), false, null));
    bytes += data.length;
    log.counters().chunksWritten.increment();
    if (group.size() == GROUP) {
      send();
    }
  }

  private void send() throws IOException, InterruptedException {
    log.await(sent);
    sent = log.applyAsync(List.copyOf(group));
    group.clear();
  }

  private static ObjectNode chunk(byte[] data, boolean more) {
    CRC32C checksum = new CRC32C();
    checksum.update(data);
    ObjectNode chunk = JsonNodeFactory.instance.objectNode().put("data", data).put("crc", checksum.getValue());
    return more ? chunk.put("more", true) : chunk;
  }
}
