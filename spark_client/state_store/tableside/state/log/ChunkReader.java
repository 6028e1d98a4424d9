package tableside.state.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.zip.CRC32C;
import org.apache.spark.io.CompressionCodec;
import tableside.state.http.Key;
import tableside.state.http.Operation;
import tableside.state.http.Outcome;

/** Reads a delta or a snapshot block by block, and prefetches the next group of chunks. */
public final class ChunkReader {
  private final StateLog log;
  private final String chunks;
  private final int count;
  private final CompressionCodec codec;
  private final List<JsonNode> group = new ArrayList<>();
  private CompletableFuture<List<Outcome>> nextGroup;
  private int requested;
  private int read;
  private int first;

  ChunkReader(StateLog log, String chunks, int count, String codec) {
    this.log = log;
    this.chunks = chunks;
    this.count = count;
    this.codec = log.codec(codec);
    this.nextGroup = requestGroup();
  }

  /** Returns the next block, or null at the end. */
  public byte[] next() throws IOException, InterruptedException {
    if (read == count) {
      return null;
    }
    first = read;
    Queue<byte[]> parts = new ArrayDeque<>();
    JsonNode chunk;
    do {
      chunk = nextChunk();
      parts.add(decodeData(chunk, log.keys().chunk(chunks, read - 1)));
    } while (hasMore(chunk));
    return decompress(parts);
  }

  /** The first chunk of the block that `next` returned last. */
  public int first() {
    return first;
  }

  public void cancel() {
    nextGroup.cancel(true);
  }

  static boolean hasMore(JsonNode chunk) {
    return chunk.path("more").asBoolean();
  }

  /** Decodes the bytes of a chunk. @throws StateUnreadable if they do not match their checksum */
  static byte[] decodeData(JsonNode chunk, Key key) throws StateUnreadable {
    byte[] data;
    try {
      data = chunk.path("data").binaryValue();
    } catch (IOException error) {
      throw new StateUnreadable(key + " is damaged: its data is not base64", error);
    }
    CRC32C checksum = new CRC32C();
    if (data != null) {
      checksum.update(data);
    }
    if (data == null || checksum.getValue() != chunk.path("crc").asLong(-1)) {
      throw new StateUnreadable(key + " is damaged: its checksum does not match");
    }
    return data;
  }

  private byte[] decompress(Queue<byte[]> parts) throws StateUnreadable {
    try {
      return CompressedBlock.decompressed(parts, codec);
    } catch (IOException | RuntimeException error) {
      throw new StateUnreadable(log.keys().chunk(chunks, first) + " is damaged: it cannot be decompressed", error);
    }
  }

  private JsonNode nextChunk() throws IOException, InterruptedException {
    if (read == count) {
      throw new StateUnreadable(log.keys().chunk(chunks, read - 1) + " is damaged: its last block is incomplete");
    }
    if (group.isEmpty()) {
      int from = read;
      List<Outcome> outcomes = log.await(nextGroup);
      nextGroup = requestGroup();
      for (Outcome outcome : outcomes) {
        if (outcome.absent()) {
          Key missing = log.keys().chunk(chunks, from + group.size());
          String chunk = "chunk " + (from + group.size() + 1) + " of " + count;
          throw new StateMissing(
              StateMissing.Part.ofChunks(chunks), missing + " (" + chunk + ")", missing + " is missing: " + chunk);
        }
        group.add(outcome.value());
      }
      java.util.Collections.reverse(group);
    }
    read++;
    log.counters().chunksRead.increment();
    return group.remove(group.size() - 1);
  }

  private CompletableFuture<List<Outcome>> requestGroup() {
    List<Operation> gets = new ArrayList<>();
    for (int end = Math.min(requested + ChunkWriter.GROUP, count); requested < end; requested++) {
      gets.add(new Operation.Get(log.keys().chunk(chunks, requested), null));
    }
    return log.applyAsync(gets);
  }
}
