package tableside.state;

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * SparkRows as Spark's operators hand them over: each kind is written into one buffer, again and again, so that a store
 * which keeps what it was given keeps the wrong thing. For one thread.
 */
final class SparkRows {
  static final StructType KEY =
      new StructType().add("name", DataTypes.StringType).add("number", DataTypes.IntegerType);
  static final StructType NUMBER = new StructType().add("value", DataTypes.IntegerType);
  static final StructType BYTES = new StructType().add("value", DataTypes.BinaryType);
  static final StructType THREE =
      new StructType()
          .add("one", DataTypes.IntegerType)
          .add("two", DataTypes.StringType)
          .add("three", DataTypes.DoubleType);

  private static final StructType NAME = new StructType().add("name", DataTypes.StringType);

  private final UnsafeProjection keys = UnsafeProjection.create(KEY);
  private final UnsafeProjection names = UnsafeProjection.create(NAME);
  private final UnsafeProjection numbers = UnsafeProjection.create(NUMBER);
  private final UnsafeProjection bytes = UnsafeProjection.create(BYTES);

  UnsafeRow key(String name, int number) {
    return keys.apply(row(UTF8String.fromString(name), number));
  }

  /** The first column of a key, of which there may be many keys. */
  UnsafeRow prefix(String name) {
    return names.apply(row(UTF8String.fromString(name)));
  }

  UnsafeRow number(Integer value) {
    return numbers.apply(row(value));
  }

  UnsafeRow bytes(byte[] value) {
    return bytes.apply(row(value));
  }

  static String name(UnsafeRow key) {
    return key.getUTF8String(0) + "/" + key.getInt(1);
  }

  private static GenericInternalRow row(Object... columns) {
    return new GenericInternalRow(columns);
  }
}
