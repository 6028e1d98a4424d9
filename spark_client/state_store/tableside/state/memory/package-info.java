/**
 * The keys of a version, and its values unless memory is bounded, as bytes in a few large arrays that versions share.
 *
 * <p>Imports no other package of the state store.
 */
package tableside.state.memory;
