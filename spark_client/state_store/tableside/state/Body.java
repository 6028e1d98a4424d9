package tableside.state;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.io.SerializedString;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpRequest;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** A batch as JSON, written one operation after another until it is full. */
final class Body {
  static final int OPERATIONS_MAX = 1_000;

  private static final byte[] HEAD = "{\"operations\":[".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] TAIL = "]}".getBytes(StandardCharsets.US_ASCII);

  private final Layout layout;
  private final int bytesMax;
  private final int wholeGetsMax;
  private final Buffer buffer = new Buffer();
  private final JsonGenerator generator;
  private int operations;
  private int wholeGets;

  /** A body of at most so many bytes, that asks for at most so many whole values: their answers are bounded too. */
  Body(Layout layout, int bytesMax, int wholeGetsMax) throws IOException {
    this.layout = layout;
    this.bytesMax = bytesMax;
    this.wholeGetsMax = wholeGetsMax;
    buffer.write(HEAD);
    generator = Json.MAPPER.createGenerator(buffer);
    generator.setRootValueSeparator(new SerializedString(","));
  }

  /** A body of these operations, whatever its size. */
  static Body of(Layout layout, List<Operation> operations) throws IOException {
    Body body = new Body(layout, Integer.MAX_VALUE, Integer.MAX_VALUE);
    for (Operation operation : operations) body.write(operation);
    return body;
  }

  /** Adds an operation; false where it does not fit, after which none may be added. The first always fits. */
  boolean add(Operation operation) throws IOException {
    boolean whole = operation instanceof Operation.Get get && get.fields() == null;
    if (operations >= OPERATIONS_MAX || (whole && wholeGets >= wholeGetsMax)) return false;
    int before = buffer.size();
    write(operation);
    if (operations > 0 && buffer.size() + TAIL.length > bytesMax) {
      buffer.truncate(before);
      return false;
    }
    operations++;
    if (whole) wholeGets++;
    return true;
  }

  /** What is sent; nothing may be added any more. */
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

  /** Bytes that are sent, which may be sent again. */
  record Content(byte[] bytes, int length) {
    HttpRequest.BodyPublisher publisher() {
      return HttpRequest.BodyPublishers.ofByteArray(bytes, 0, length);
    }
  }

  /** Bytes that can be taken back, and are not copied to be sent. */
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
