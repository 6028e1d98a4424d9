package tableside.state.http;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.io.SerializedString;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpRequest;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** A batch request in JSON, to which operations are added until it is full. */
final class BatchBody {
  static final int OPERATIONS_MAX = 1_000;

  private static final byte[] HEAD = "{\"operations\":[".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] TAIL = "]}".getBytes(StandardCharsets.US_ASCII);

  private final KeyLayout layout;
  private final int bytesMax;
  private final int fullGetsMax;
  private final Buffer buffer = new Buffer();
  private final JsonGenerator generator;
  private int operations;
  private int fullGets;

  /**
   * Creates a body of at most `bytesMax` bytes with at most `fullGetsMax` gets of whole values, which limits the
   * response.
   */
  BatchBody(KeyLayout layout, int bytesMax, int fullGetsMax) throws IOException {
    this.layout = layout;
    this.bytesMax = bytesMax;
    this.fullGetsMax = fullGetsMax;
    buffer.write(HEAD);
    generator = Json.MAPPER.createGenerator(buffer);
    generator.setRootValueSeparator(new SerializedString(","));
  }

  /** Creates a body of these operations without any limit. */
  static BatchBody of(KeyLayout layout, List<Operation> operations) throws IOException {
    BatchBody body = new BatchBody(layout, Integer.MAX_VALUE, Integer.MAX_VALUE);
    for (Operation operation : operations) body.write(operation);
    return body;
  }

  /** Adds an operation. Returns false if it does not fit; nothing may be added after that. The first always fits. */
  boolean add(Operation operation) throws IOException {
    boolean whole = operation instanceof Operation.Get get && get.fields() == null;
    if (operations >= OPERATIONS_MAX || (whole && fullGets >= fullGetsMax)) return false;
    int before = buffer.size();
    write(operation);
    if (operations > 0 && buffer.size() + TAIL.length > bytesMax) {
      buffer.truncate(before);
      return false;
    }
    operations++;
    if (whole) fullGets++;
    return true;
  }

  /** Ends the body and returns its bytes. Nothing may be added afterwards. */
  Content content() {
    buffer.writeBytes(TAIL);
    return buffer.content();
  }

  private void write(Operation operation) throws IOException {
    generator.writeStartObject();
    generator.writeStringField("op", operation.verb());
    generator.writeFieldName("key");
    layout.write(operation.key(), generator);
    writeMembers(operation);
    generator.writeEndObject();
    generator.flush();
  }

  private void writeMembers(Operation operation) throws IOException {
    if (operation instanceof Operation.Get get) {
      if (get.fields() != null) {
        generator.writeArrayFieldStart("fields");
        for (String field : get.fields()) generator.writeString(field);
        generator.writeEndArray();
      }
    } else if (operation instanceof Operation.Put put) {
      write("value", put.value());
      if (put.ifAbsent()) generator.writeBooleanField("if_absent", true);
      if (put.ifMatch() != null) generator.writeStringField("if_match", put.ifMatch());
    } else if (operation instanceof Operation.Update update) {
      write("update", update.update());
      if (update.defaultValue() != null) write("default", update.defaultValue());
      if (update.returning()) generator.writeBooleanField("return", true);
    }
  }

  private void write(String name, JsonNode node) throws IOException {
    generator.writeFieldName(name);
    Json.MAPPER.writeTree(generator, node);
  }

  /** The bytes of a body, which may be sent repeatedly. */
  record Content(byte[] bytes, int length) {
    HttpRequest.BodyPublisher publisher() {
      return HttpRequest.BodyPublishers.ofByteArray(bytes, 0, length);
    }
  }

  /** A buffer that can be truncated, and whose bytes are sent without a copy. */
  private static final class Buffer extends ByteArrayOutputStream {
    Buffer() {
      super(1 << 13);
    }

    void truncate(int size) {
      count = size;
    }

    Content content() {
      return new Content(buf, count);
    }
  }
}
