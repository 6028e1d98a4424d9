package tableside.state.http;

/** A key of the state table: a store or query, and an item within it. */
public record Key(String place, String item) {
  @Override
  public String toString() {
    return item + " of " + place;
  }
}
