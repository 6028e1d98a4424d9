package tableside.state;

import java.io.IOException;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;

/** Takes the body of an answer as it comes, without copying it, up to a size. */
final class Bounded implements HttpResponse.BodySubscriber<List<ByteBuffer>> {
  private final int bytesMax;
  private final Meter meter;
  private final List<ByteBuffer> taken = new ArrayList<>();
  private final CompletableFuture<List<ByteBuffer>> whole = new CompletableFuture<>();
  private Flow.Subscription subscription;
  private long bytes;

  Bounded(int bytesMax, Meter meter) {
    this.bytesMax = bytesMax;
    this.meter = meter;
  }

  /** An answer that is larger than any that is wanted. */
  static final class TooLargeException extends IOException {
    private static final long serialVersionUID = 1;

    TooLargeException(int bytesMax) {
      super("an answer of more than " + bytesMax + " bytes");
    }
  }

  @Override
  public CompletionStage<List<ByteBuffer>> getBody() {
    return whole;
  }

  @Override
  public void onSubscribe(Flow.Subscription given) {
    subscription = given;
    given.request(Long.MAX_VALUE);
  }

  @Override
  public void onNext(List<ByteBuffer> buffers) {
    for (ByteBuffer buffer : buffers) {
      bytes += buffer.remaining();
      meter.receivedBytes.add(buffer.remaining());
      taken.add(buffer);
    }
    if (bytes > bytesMax) {
      taken.clear();
      subscription.cancel();
      whole.completeExceptionally(new TooLargeException(bytesMax));
    }
  }

  @Override
  public void onError(Throwable error) {
    whole.completeExceptionally(error);
  }

  @Override
  public void onComplete() {
    whole.complete(taken);
  }
}
