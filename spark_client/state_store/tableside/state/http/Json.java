package tableside.state.http;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;

/**
 * Reads JSON. Names of members are not interned, since some of them are data. A string may be as long as a response.
 */
final class Json {
  static final ObjectMapper MAPPER =
      new ObjectMapper(
          JsonFactory.builder()
              .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
              .disable(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES)
              .streamReadConstraints(
                  StreamReadConstraints.builder().maxStringLength(ServiceClient.RESPONSE_BYTES_MAX).build())
              .build());

  private Json() {}

  /** Reads the elements of `results` one by one. The document must be complete. */
  static List<JsonNode> results(InputStream body) throws IOException {
    List<JsonNode> results = null;
    try (JsonParser parser = MAPPER.createParser(body)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) throw new IOException("not an object");
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        boolean wanted = parser.currentName().equals("results");
        if (parser.nextToken() == JsonToken.START_ARRAY && wanted) {
          results = elements(parser);
        } else {
          parser.skipChildren();
        }
      }
      if (parser.currentToken() != JsonToken.END_OBJECT || results == null) {
        throw new IOException("results are missing");
      }
    }
    return results;
  }

  private static List<JsonNode> elements(JsonParser parser) throws IOException {
    List<JsonNode> elements = new ArrayList<>();
    while (parser.nextToken() != JsonToken.END_ARRAY) {
      if (parser.currentToken() != JsonToken.START_OBJECT) throw new IOException("a result is not an object");
      elements.add(MAPPER.readTree(parser));
    }
    return elements;
  }
}
