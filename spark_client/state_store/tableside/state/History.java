package tableside.state;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The deltas that led to a version, back beyond the snapshot that it builds on, as far as they are retained. */
final class History {
  private final StateLog log;

  History(StateLog log) {
    this.log = log;
  }

  /**
   * @param from the version before the first delta
   * @param uid the commit's that made version `to`; null in format v1
   * @return the deltas of the versions after `from` up to `to`, in order
   * @throws StateUnreadable if they do not reach back so far
   */
  List<Lineage.Delta> deltas(long from, long to, String uid) throws IOException, InterruptedException {
    List<List<Lineage.Delta>> pieces = new ArrayList<>();
    Manifest manifest = log.manifest(to, uid);
    while (true) {
      Lineage lineage = manifest.lineage();
      pieces.add(lineage.deltas().stream().filter(delta -> delta.version() > from).toList());
      Lineage.Base base = lineage.base();
      if (base == null || base.version() <= from) {
        break;
      }
      manifest = log.manifestOf(base);
    }
    Collections.reverse(pieces);
    List<Lineage.Delta> deltas = pieces.stream().flatMap(List::stream).toList();
    if (deltas.size() != to - from) {
      throw new StateUnreadable(
          "the changes after version " + from + " of " + log.place().path() + " are not all there: " + deltas.size()
              + " of " + (to - from));
    }
    return deltas;
  }

  /** A version with the snapshot of an earlier one and the deltas after that, in place of what its manifest names. */
  Manifest from(long snapshotVersion, String snapshotUid, long version, String uid)
      throws IOException, InterruptedException {
    Manifest manifest = log.manifest(version, uid);
    List<Lineage.Delta> deltas = deltas(snapshotVersion, version, uid);
    String made = snapshotUid != null ? snapshotUid : log.manifest(snapshotVersion, null).uid();
    Lineage.Base base = log.snapshotOf(snapshotVersion, made);
    if (base == null) {
      throw new StateUnreadable("there is no snapshot of version " + snapshotVersion + " of " + log.place().path());
    }
    Lineage lineage = new Lineage(base, deltas);
    return new Manifest(
        version, manifest.uid(), lineage, manifest.chunks(), manifest.records(), manifest.bytes(), manifest.epoch(),
        manifest.attempt(), manifest.time());
  }
}
