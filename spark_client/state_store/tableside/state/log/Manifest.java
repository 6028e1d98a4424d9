package tableside.state.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;

/**
 * The record that makes a version visible. It is written after everything that it names.
 *
 * @param uid the identity of the commit
 * @param chunks the number of chunks of this version's own delta
 * @param records the number of keys of the version
 * @param bytes the compressed size of this version's own delta
 * @param epoch with `attempt`, the order of writers: if two commit one version, the later one prevails (format v1)
 * @param time RFC 3339
 */
public record Manifest(
    long version, String uid, Lineage lineage, int chunks, long records, long bytes, long epoch, long attempt,
    String time) {
  private static final int FORMAT = 1;

  public static String now() {
    return Instant.now().truncatedTo(ChronoUnit.MILLIS).toString();
  }

  boolean isOlderThan(Manifest other) {
    return epoch != other.epoch ? epoch < other.epoch : attempt < other.attempt;
  }

  /** The same version, based on a newer snapshot if its lineage contains the snapshot's version. */
  public Manifest rebasedOn(Lineage.Base base) {
    return with(lineage.rebasedOn(base));
  }

  /** The same version with other parts that lead to it. */
  Manifest with(Lineage other) {
    return new Manifest(version, uid, other, chunks, records, bytes, epoch, attempt, time);
  }

  ObjectNode toJson() {
    ObjectNode json = JsonNodeFactory.instance.objectNode();
    json.put("format", FORMAT).put("version", version).put("uid", uid).put("time", time);
    json.put("chunks", chunks).put("records", records).put("bytes", bytes).put("epoch", epoch).put("attempt", attempt);
    Lineage.Base base = lineage.base();
    if (base == null) {
      json.putNull("base");
    } else {
      describe(json.putObject("base"), base.version(), base.uid(), base.chunks(), base.codec())
          .put("snapshot", base.snapshot());
    }
    ArrayNode deltas = json.putArray("deltas");
    for (Lineage.Delta delta : lineage.deltas()) {
      describe(deltas.addObject(), delta.version(), delta.uid(), delta.chunks(), delta.codec());
    }
    return json;
  }

  /** @throws IllegalArgumentException if the record is malformed or of an unknown format */
  static Manifest of(JsonNode json) {
    if (json.required("format").asInt() != FORMAT) {
      throw new IllegalArgumentException("this provider does not support format " + json.get("format"));
    }
    List<Lineage.Delta> deltas = new ArrayList<>();
    for (JsonNode delta : json.required("deltas")) {
      deltas.add(
          new Lineage.Delta(
              whole(delta, "version"), text(delta, "uid"), (int) whole(delta, "chunks"), text(delta, "codec")));
    }
    return new Manifest(
        whole(json, "version"), text(json, "uid"), new Lineage(base(json.required("base")), List.copyOf(deltas)),
        (int) whole(json, "chunks"), whole(json, "records"), whole(json, "bytes"),
        whole(json, "epoch"), whole(json, "attempt"), text(json, "time"));
  }

  private static Lineage.Base base(JsonNode json) {
    return json.isNull()
        ? null
        : new Lineage.Base(
            whole(json, "version"), text(json, "uid"), text(json, "snapshot"), (int) whole(json, "chunks"),
            text(json, "codec"));
  }

  private static ObjectNode describe(ObjectNode json, long version, String uid, int chunks, String codec) {
    return json.put("version", version).put("uid", uid).put("chunks", chunks).put("codec", codec);
  }

  private static long whole(JsonNode json, String name) {
    JsonNode number = json.required(name);
    if (!number.isIntegralNumber()) {
      throw new IllegalArgumentException("its " + name + " is not a whole number");
    }
    return number.longValue();
  }

  private static String text(JsonNode json, String name) {
    JsonNode text = json.required(name);
    if (!text.isTextual()) {
      throw new IllegalArgumentException("its " + name + " is not a string");
    }
    return text.textValue();
  }
}
