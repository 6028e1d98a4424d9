/**
 * The state store provider that queries configure: reading, committing and loading versions through Spark's interface.
 *
 * <p>Imports the other packages: {@code http}, {@code memory} and {@code log}.
 */
package tableside.state;
