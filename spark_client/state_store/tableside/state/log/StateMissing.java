package tableside.state.log;

/** A record of a version is not in the table. */
public final class StateMissing extends StateUnreadable {
  /** What the record is part of. */
  public enum Part {
    VERSION,
    DELTA,
    SNAPSHOT;

    /** Whether chunks with this item prefix belong to a delta or to a snapshot. */
    static Part ofChunks(String chunks) {
      return chunks.startsWith(StoreKeys.SNAPSHOTS) ? SNAPSHOT : DELTA;
    }
  }

  private final Part part;
  private final String missing;

  /** @param missing names the record, and the reason for its absence if it is known */
  StateMissing(Part part, String missing, String message) {
    this(part, missing, message, null);
  }

  private StateMissing(Part part, String missing, String message, Throwable cause) {
    super(message, cause);
    this.part = part;
    this.missing = missing;
  }

  @Override
  public StateMissing with(String information) {
    return new StateMissing(part, missing + information, getMessage() + information, this);
  }

  public Part part() {
    return part;
  }

  public String missing() {
    return missing;
  }
}
