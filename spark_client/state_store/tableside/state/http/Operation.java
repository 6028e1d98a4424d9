package tableside.state.http;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;

/** An operation on one record. */
public sealed interface Operation {
  Key key();

  /** Reads a value, or only the members in `fields` if these are given. */
  record Get(Key key, List<String> fields) implements Operation {}

  /** Stores a value: unconditionally, if the record is absent, or if the record has this etag. */
  record Put(Key key, JsonNode value, boolean ifAbsent, String ifMatch) implements Operation {
    public Put {
      if (ifAbsent && ifMatch != null) throw new IllegalArgumentException("ifAbsent and ifMatch cannot be combined");
    }
  }

  /** Changes a value atomically. An absent record starts from the default; null means no default. */
  record Update(Key key, JsonNode update, JsonNode defaultValue, boolean returning) implements Operation {}

  /** Removes a record. Succeeds if the record is absent. */
  record Delete(Key key) implements Operation {}

  /** The name of the operation in requests and messages. */
  default String verb() {
    if (this instanceof Get) return "get";
    if (this instanceof Put) return "put";
    return this instanceof Update ? "update" : "delete";
  }
}
