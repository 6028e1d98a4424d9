package tableside.state.log;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The retained deltas that led to a version, including those before the snapshot that it builds on. */
public record DeltaHistory(StateLog log) {
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
    List<Lineage.Base> bases = log.manifests().snapshotsOf(snapshotVersion, made);
    if (bases.isEmpty()) {
      String snapshot = "snapshot of version " + snapshotVersion + " of " + log.keys().prefix();
      throw new StateMissing(StateMissing.Part.SNAPSHOT, snapshot, "there is no " + snapshot);
    }
    return manifest.with(new Lineage(bases.get(0), deltas));
  }

  /**
   * The same version on every snapshot that its history names, newest first, and last on the empty state if its deltas
   * reach back to the first version.
   */
  public List<Manifest> onOtherBases(Manifest manifest) throws IOException, InterruptedException {
    Lineage history = history(manifest.lineage());
    List<Manifest> others = new ArrayList<>();
    for (Lineage.Delta delta : history.deltas()) {
      for (Lineage.Base base : log.manifests().snapshotsOf(delta.version(), delta.uid())) {
        others.add(0, manifest.with(history.rebasedOn(base)));
      }
    }
    others.add(manifest.with(history));
    others.removeIf(other -> other.lineage().equals(manifest.lineage()));
    return others;
  }

  /** Extends a lineage before its snapshot, as far as manifests of earlier snapshots exist. */
  private Lineage history(Lineage lineage) throws IOException, InterruptedException {
    Lineage longer = lineage;
    while (longer.base() != null) {
      try {
        Lineage earlier = log.manifests().of(longer.base()).lineage();
        List<Lineage.Delta> deltas = new ArrayList<>(earlier.deltas());
        deltas.addAll(longer.deltas());
        longer = new Lineage(earlier.base(), List.copyOf(deltas));
      } catch (StateUnreadable end) {
        return longer;
      }
    }
    return longer;
  }
}
