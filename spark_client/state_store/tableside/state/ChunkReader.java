package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.zip.CRC32C;
import org.apache.spark.io.CompressionCodec;

/** Reads a delta or a snapshot block after block; while one group of chunks is looked at, the next is on its way. */
final class ChunkReader {
  private final StateLog log;
  private final String chunks;
  private final int count;
  private final CompressionCodec codec;
  private final List<JsonNode> group = new ArrayList<>();
  private CompletableFuture<List<Outcome>> coming;
  private int requested;
  private int read;
  private int first;

  ChunkReader(StateLog log, String chunks, int count, String codec) {
    this.log = log;
    this.chunks = chunks;
    this.count = count;
    this.codec = log.codec(codec);
    this.coming = request();
  }

  /** The next block, or null at the end. */
  byte[] next() throws IOException, InterruptedException {
    if (read == count) {
      return null;
    }
    first = read;
    byte[] data = null;
    JsonNode chunk;
    ByteArrayOutputStream whole = null;
    do {
      chunk = nextChunk();
      data = dataOf(chunk, log.place().chunk(chunks, read - 1));
      if (whole != null || goesOn(chunk)) {
        whole = whole == null ? new ByteArrayOutputStream() : whole;
        whole.writeBytes(data);
      }
    } while (goesOn(chunk));
    return decompress(whole == null ? data : whole.toByteArray());
  }

  /** The first chunk of the block that `next` gave last. */
  int first() {
    return first;
  }

  void cancel() {
    coming.cancel(true);
  }

  static boolean goesOn(JsonNode chunk) {
    return chunk.path("more").asBoolean();
  }

  /** The bytes of a chunk. @throws StateUnreadable if they are not what was written */
  static byte[] dataOf(JsonNode chunk, Key key) throws StateUnreadable {
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
      throw new StateUnreadable(key + " is damaged: its checksum is another");
    }
    return data;
  }

  private byte[] decompress(byte[] data) throws StateUnreadable {
    try {
      return Block.decompressed(data, codec);
    } catch (IOException | RuntimeException error) {
      throw new StateUnreadable(log.place().chunk(chunks, first) + " is damaged: it cannot be decompressed", error);
    }
  }

  private JsonNode nextChunk() throws IOException, InterruptedException {
    if (read == count) {
      throw new StateUnreadable(log.place().chunk(chunks, read - 1) + " is damaged: its block does not end");
    }
    if (group.isEmpty()) {
      int from = read;
      List<Outcome> outcomes = log.await(coming);
      coming = request();
      for (Outcome outcome : outcomes) {
        if (outcome.absent()) {
          Key missing = log.place().chunk(chunks, from + group.size());
          throw new StateUnreadable(missing + " is missing: chunk " + (from + group.size() + 1) + " of " + count);
        }
        group.add(outcome.value());
      }
      java.util.Collections.reverse(group);
    }
    read++;
    log.meter().chunksRead.increment();
    return group.remove(group.size() - 1);
  }

  private CompletableFuture<List<Outcome>> request() {
    List<Operation> gets = new ArrayList<>();
    for (int end = Math.min(requested + ChunkWriter.GROUP, count); requested < end; requested++) {
      gets.add(new Operation.Get(log.place().chunk(chunks, requested), null));
    }
    return log.begin(gets);
  }
}
