/**
 * Requests to the Tableside service: operations on a table, retried until each has an outcome, and the settings and
 * counters of a store.
 *
 * <p>Imports no other package of the state store.
 */
package tableside.state.http;
