package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;

/** One thing to be done with one record. */
sealed interface Operation {
  Key key();

  /** Reads a value, or of it the members that are named, where fields are given. */
  record Get(Key key, List<String> fields) implements Operation {
    /** Reads the whole value. */
    Get(Key key) {
      this(key, null);
    }
  }

  /** Stores a value: whatever is there, if nothing is there, or if what is there has this etag. */
  record Put(Key key, JsonNode value, boolean ifAbsent, String ifMatch) implements Operation {
    public Put {
      if (ifAbsent && ifMatch != null) throw new IllegalArgumentException("if absent, or if it matches: not both");
    }
  }

  /** Changes a value in one atomic step, beginning from the default (null: none) where nothing is there. */
  record Update(Key key, JsonNode update, JsonNode defaultValue, boolean returning) implements Operation {}

  /** Removes a record; that there is none is success. */
  record Delete(Key key) implements Operation {}

  /** What the operation is called, in requests and messages. */
  default String verb() {
    if (this instanceof Get) return "get";
    if (this instanceof Put) return "put";
    return this instanceof Update ? "update" : "delete";
  }
}
