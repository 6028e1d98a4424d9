// Writes kafka_placement.tsv: the partitions that Kafka's producer chooses for 500 keys (kafka-clients 4.1.0).
//
//   mvn dependency:copy -Dartifact=org.apache.kafka:kafka-clients:4.1.0 -DoutputDirectory=jars
//   mvn dependency:copy -Dartifact=org.slf4j:slf4j-api:2.0.17 -DoutputDirectory=jars
//   java -cp "jars/*" KafkaPlacement.java > kafka_placement.tsv
//
// A line has the kind of the key, its bytes, the number of partitions, the hash and the partition. There are 300 keys of
// any bytes, 0 to 199 long, and 200 of text, 0 to 39 characters long, most of them not ASCII.

import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Utils;

public class KafkaPlacement {
    static final String[] CHARACTERS = {"a", "Z", "0", "-", "é", "ß", "Ж", "漢", "€", "\u0000", "🛫", "\u0301"};

    public static void main(String[] arguments) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (int number : IntStream.concat(IntStream.range(0, 300), IntStream.range(8_000, 8_200)).toArray()) {
            byte[] key = number < 8_000 ? bytes(number) : new StringSerializer().serialize("", text(number));
            int partitions = 1 + number % 97;
            int partition = BuiltInPartitioner.partitionForKey(key, partitions);
            String kind = number < 8_000 ? "bytes" : "text";
            String hex = HexFormat.of().formatHex(key);
            lines.append(String.format("%s\t%s\t%d\t%d\t%d\n", kind, hex, partitions, Utils.murmur2(key), partition));
        }
        System.out.print(lines);
    }

    static byte[] bytes(int number) throws Exception {
        byte[] digest = digest(number);
        byte[] key = new byte[number % 200];
        for (int at = 0; at < key.length; at++) key[at] = (byte) (digest[at % 32] + at / 32);
        return key;
    }

    static String text(int number) throws Exception {
        byte[] digest = digest(number);
        StringBuilder key = new StringBuilder();
        for (int at = 0; at < number % 40; at++) key.append(CHARACTERS[((digest[at % 32] & 255) + at / 32) % 12]);
        return key.toString();
    }

    static byte[] digest(int number) throws Exception {
        return MessageDigest.getInstance("SHA-256").digest(Integer.toString(number).getBytes("US-ASCII"));
    }
}
