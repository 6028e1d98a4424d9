/**
 * The versions of a store as records of a table: manifests, deltas, snapshots, their cleanup, and copies of blocks on
 * the local disk.
 *
 * <p>Imports only {@code tableside.state.http}.
 */
package tableside.state.log;
