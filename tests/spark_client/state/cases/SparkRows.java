package tableside.state;

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Rows as Spark's operators pass them: rows of one kind share a buffer, so that a store that keeps a row without
 * copying it is detected. Not thread-safe.
 */
final class SparkRows {
  static final StructType KEY =
      new StructType().add("name", DataTypes.StringType).add("number", DataTypes.IntegerType);
  /** Keys and prefixes of fixed size, whose rows fill their buffer. */
  static final StructType TWO_NUMBERS =
      new StructType().add("name", DataTypes.LongType).add("number", DataTypes.LongType);
  static final StructType NUMBER = new StructType().add("value", DataTypes.IntegerType);
  static final StructType BYTES = new StructType().add("value", DataTypes.BinaryType);
  static final StructType THREE =
      new StructType()
          .add("one", DataTypes.IntegerType)
          .add("two", DataTypes.StringType)
          .add("three", DataTypes.DoubleType);

  private final StructType schema;
  private final UnsafeProjection keys;
  private final UnsafeProjection names;
  private final UnsafeProjection numbers = UnsafeProjection.create(NUMBER);
  private final UnsafeProjection bytes = UnsafeProjection.create(BYTES);

  SparkRows() {
    this(KEY);
  }

  /** @param schema of the keys: {@link #KEY} or {@link #TWO_NUMBERS} */
  SparkRows(StructType schema) {
    this.schema = schema;
    this.keys = UnsafeProjection.create(schema);
    this.names = UnsafeProjection.create(new StructType().add(schema.apply(0)));
  }

  UnsafeRow key(String name, int number) {
    return keys.apply(schema == TWO_NUMBERS ? row(Long.valueOf(name), (long) number) : row(text(name), number));
  }

  /** The first column of a key, as a prefix. */
  UnsafeRow prefix(String name) {
    return names.apply(schema == TWO_NUMBERS ? row(Long.valueOf(name)) : row(text(name)));
  }

  UnsafeRow number(Integer value) {
    return numbers.apply(row(value));
  }

  UnsafeRow bytes(byte[] value) {
    return bytes.apply(row(value));
  }

  static String name(UnsafeRow key) {
    return name(key, KEY);
  }

  static String name(UnsafeRow key, StructType schema) {
    return key.get(0, schema.apply(0).dataType()) + "/" + key.get(1, schema.apply(1).dataType());
  }

  private static UTF8String text(String name) {
    return UTF8String.fromString(name);
  }

  private static GenericInternalRow row(Object... columns) {
    return new GenericInternalRow(columns);
  }
}
