package tableside.state.log;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The retained deltas that led to a version, including those before the snapshot that it builds on. */
public final class DeltaHistory {
  private final StateLog log;

  public DeltaHistory(StateLog log) {
    this.log = log;
  }

  /**
   * @param from the version before the first delta
   * @param uid the identity of the commit that created version `to`; null in format v1
   * @return the deltas of the versions after `from` up to `to`, in order
   * @throws StateUnreadable if the retained deltas do not reach back to `from`
   */
  public List<Lineage.Delta> deltas(long from, long to, String uid) throws IOException, InterruptedException {
    List<List<Lineage.Delta>> pieces = new ArrayList<>();
    Manifest manifest = log.manifests().of(to, uid);
    while (true) {
      Lineage lineage = manifest.lineage();
      pieces.add(lineage.deltas().stream().filter(delta -> delta.version() > from).toList());
      Lineage.Base base = lineage.base();
      if (base == null || base.version() <= from) {
        break;
      }
      manifest = log.manifests().of(base);
    }
    Collections.reverse(pieces);
    List<Lineage.Delta> deltas = pieces.stream().flatMap(List::stream).toList();
    if (deltas.size() != to - from) {
      throw new StateUnreadable(
          "the changes after version " + from + " of " + log.keys().prefix() + " are incomplete: " + deltas.size()
              + " of " + (to - from) + " deltas");
    }
    return deltas;
  }

  /** Builds the manifest of a version from the snapshot of an earlier version and the deltas after it. */
  public Manifest from(long snapshotVersion, String snapshotUid, long version, String uid)
      throws IOException, InterruptedException {
    Manifest manifest = log.manifests().of(version, uid);
    List<Lineage.Delta> deltas = deltas(snapshotVersion, version, uid);
    String made = snapshotUid != null ? snapshotUid : log.manifests().of(snapshotVersion, null).uid();
    Lineage.Base base = log.manifests().snapshotOf(snapshotVersion, made);
    if (base == null) {
      String snapshot = "snapshot of version " + snapshotVersion + " of " + log.keys().prefix();
      throw new StateMissing(StateMissing.Part.SNAPSHOT, snapshot, "there is no " + snapshot);
    }
    Lineage lineage = new Lineage(base, deltas);
    return new Manifest(
        version, manifest.uid(), lineage, manifest.chunks(), manifest.records(), manifest.bytes(), manifest.epoch(),
        manifest.attempt(), manifest.time());
  }
}
