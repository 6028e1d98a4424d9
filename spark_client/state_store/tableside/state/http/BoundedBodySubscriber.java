package tableside.state.http;

import java.io.IOException;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;

/** Collects the body of a response without copying it, up to a maximum size. */
final class BoundedBodySubscriber implements HttpResponse.BodySubscriber<List<ByteBuffer>> {
  private final int bytesMax;
  private final StoreCounters counters;
  private final List<ByteBuffer> received = new ArrayList<>();
  private final CompletableFuture<List<ByteBuffer>> body = new CompletableFuture<>();
  private Flow.Subscription subscription;
  private long bytes;

  BoundedBodySubscriber(int bytesMax, StoreCounters counters) {
    this.bytesMax = bytesMax;
    this.counters = counters;
  }

  /** The response exceeds the maximum size. */
  static final class TooLargeException extends IOException {
    private static final long serialVersionUID = 1;

    TooLargeException(int bytesMax) {
      super("the response is larger than " + bytesMax + " bytes");
    }
  }

  @Override
  public CompletionStage<List<ByteBuffer>> getBody() {
    return body;
  }

  @Override
  public void onSubscribe(Flow.Subscription newSubscription) {
    subscription = newSubscription;
    newSubscription.request(Long.MAX_VALUE);
  }

  @Override
  public void onNext(List<ByteBuffer> buffers) {
    for (ByteBuffer buffer : buffers) {
      bytes += buffer.remaining();
      counters.receivedBytes.add(buffer.remaining());
      received.add(buffer);
    }
    if (bytes > bytesMax) {
      received.clear();
      subscription.cancel();
      body.completeExceptionally(new TooLargeException(bytesMax));
    }
  }

  @Override
  public void onError(Throwable error) {
    body.completeExceptionally(error);
  }

  @Override
  public void onComplete() {
    body.complete(received);
  }
}
