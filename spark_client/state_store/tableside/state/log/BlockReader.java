package tableside.state.log;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import tableside.state.http.Key;
import tableside.state.http.Outcome;

/** Reads blocks with values that are not in memory from the table. */
public record BlockReader(StateLog log) {
  /** Reads several blocks together. @throws StateUnreadable if one is missing or damaged */
  public Map<Integer, byte[]> read(Map<Integer, BlockIndex.Address> wanted) throws IOException, InterruptedException {
    Map<Integer, byte[]> found = new HashMap<>();
    Map<Integer, Queue<byte[]>> parts = new HashMap<>();
    Map<Integer, BlockIndex.Address> open = wanted;
    for (int part = 0; !open.isEmpty(); part++) {
      Map<Integer, BlockIndex.Address> unfinished = new HashMap<>();
      List<Key> keys = new ArrayList<>();
      for (BlockIndex.Address address : open.values()) {
        keys.add(log.keys().chunk(address.chunks(), address.first() + part));
      }
      List<Outcome> outcomes = log.get(keys);
      int index = 0;
      for (Map.Entry<Integer, BlockIndex.Address> entry : open.entrySet()) {
        Key key = keys.get(index);
        Outcome outcome = outcomes.get(index++);
        if (outcome.absent()) {
          StateMissing.Part owner = StateMissing.Part.ofChunks(entry.getValue().chunks());
          throw new StateMissing(owner, key.toString(), key + " is missing");
        }
        log.counters().chunksRead.increment();
        Queue<byte[]> data = parts.computeIfAbsent(entry.getKey(), number -> new ArrayDeque<>());
        data.add(ChunkReader.decodeData(outcome.value(), key));
        if (ChunkReader.hasMore(outcome.value())) {
          unfinished.put(entry.getKey(), entry.getValue());
        } else {
          found.put(entry.getKey(), decompressed(data, entry.getValue(), key));
        }
      }
      open = unfinished;
    }
    return found;
  }

  private byte[] decompressed(Queue<byte[]> parts, BlockIndex.Address address, Key key) throws StateUnreadable {
    try {
      return CompressedBlock.decompressed(parts, log.codec(address.codec()));
    } catch (IOException | RuntimeException error) {
      throw new StateUnreadable(key + " is damaged: it cannot be decompressed", error);
    }
  }
}
