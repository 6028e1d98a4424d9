package tableside.state.log;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Collections;
import tableside.state.Check;
import tableside.state.http.Settings;

/** Manifests are records of limited size. */
public final class ManifestCases {
  private static final String UID = "01234567-89ab-cdef-0123-456789abcdef";
  private static final String CODEC = "org.apache.spark.io.ZStdCompressionCodec";

  private ManifestCases() {}

  public static void aManifestOfTheMostDeltasIsBelowOneMebibyte() {
    long most = Long.MAX_VALUE;
    Lineage.Delta delta = new Lineage.Delta(most, UID, Integer.MAX_VALUE, CODEC);
    Lineage.Base base = new Lineage.Base(most, UID, UID, Integer.MAX_VALUE, CODEC);
    Lineage lineage = new Lineage(base, Collections.nCopies(Settings.DELTAS_MAX + 1, delta));
    JsonNode json = new Manifest(most, UID, lineage, 1, most, most, most, most, Manifest.now()).toJson();
    Check.that(json.toString().length() < 1 << 20, "it fits in a value: " + json.toString().length());
  }
}
