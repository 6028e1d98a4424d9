package tableside.state;

/** A key of the state table: of what it is a part, and what it is there. */
record Key(String place, String item) {
  @Override
  public String toString() {
    return item + " of " + place;
  }
}
