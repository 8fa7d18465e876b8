// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;
import javax.net.ssl.SSLContext;

/** Calls over the HTTP client of the JDK. */
final class HttpTransport implements Transport {
    private static final int LONGEST_ANSWER = 4 << 20;

    private final HttpClient client;

    HttpTransport(final Optional<SSLContext> tls) {
        // HTTP/1.1: without TLS the client would ask each server for an upgrade to HTTP/2.
        final HttpClient.Builder builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1);
        tls.ifPresent(builder::sslContext);
        client = builder.build();
    }

    @Override
    public Reply post(
            final String url, final Map<String, String> headers, final String body, final Duration limit)
            throws IOException, InterruptedException {
        return post(url, headers, body, limit, null);
    }

    @Override
    public Reply post(
            final String url,
            final Map<String, String> headers,
            final String body,
            final Duration limit,
            final Predicate<byte[]> events) // null: not wanted
            throws IOException, InterruptedException {
        final HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url))
                .POST(HttpRequest.BodyPublishers.ofString(body));
        headers.forEach(request::header);
        final long until = System.nanoTime() + limit.toNanos();
        // The parts of a stream, and at last nothing.
        final BlockingQueue<Optional<byte[]>> parts = new LinkedBlockingQueue<>();
        final CompletableFuture<HttpResponse<String>> answer = client.sendAsync(request.build(), info -> {
            final String type = info.headers().firstValue("Content-Type").orElse("");
            return new Limited(events != null && Events.isStream(type) ? handedOn(parts) : whole());
        });
        answer.whenComplete((got, error) -> parts.add(Optional.empty()));
        try {
            while (events != null) {
                final Optional<byte[]> part = parts.poll(until - System.nanoTime(), TimeUnit.NANOSECONDS);
                if (part == null || part.isEmpty()) {
                    break; // the limit is over, or the answer is there
                }
                if (events.test(part.get())) {
                    return new Reply(200, Events.EVENT_STREAM, "", "");
                }
            }
            // The request's own time-out ends with the headers of the answer, this one with its body.
            final HttpResponse<String> got = answer.get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
            return new Reply(got.statusCode(), header(got, "Content-Type"), got.body(), header(got, "Retry-After"));
        } catch (final TimeoutException error) {
            throw new IOException("no answer within " + limit.toMillis() + " ms", error);
        } catch (final ExecutionException error) {
            throw error.getCause() instanceof IOException cause ? cause : new IOException(error.getCause());
        } finally {
            answer.cancel(true); // has no effect on an answer that is there
        }
    }

    private static HttpResponse.BodySubscriber<String> whole() {
        return HttpResponse.BodySubscribers.ofString(StandardCharsets.UTF_8);
    }

    private static HttpResponse.BodySubscriber<String> handedOn(final BlockingQueue<Optional<byte[]>> to) {
        return HttpResponse.BodySubscribers.mapping(
                HttpResponse.BodySubscribers.ofByteArrayConsumer(to::add), nothing -> "");
    }

    private static String header(final HttpResponse<?> answer, final String name) {
        return answer.headers().firstValue(name).orElse("");
    }

    /** Reads a body that is not too long. */
    private static final class Limited implements HttpResponse.BodySubscriber<String> {
        private final HttpResponse.BodySubscriber<String> inner;
        private Flow.Subscription subscription;
        private long length;

        Limited(final HttpResponse.BodySubscriber<String> inner) {
            this.inner = inner;
        }

        @Override
        public CompletionStage<String> getBody() {
            return inner.getBody();
        }

        @Override
        public void onSubscribe(final Flow.Subscription given) {
            subscription = given;
            inner.onSubscribe(given);
        }

        @Override
        public void onNext(final List<ByteBuffer> items) {
            length += items.stream().mapToLong(ByteBuffer::remaining).sum();
            if (length <= LONGEST_ANSWER) {
                inner.onNext(items);
            } else {
                subscription.cancel();
                inner.onError(new IOException("an answer of more than " + LONGEST_ANSWER + " bytes"));
            }
        }

        @Override
        public void onError(final Throwable error) {
            inner.onError(error);
        }

        @Override
        public void onComplete() {
            inner.onComplete();
        }
    }
}
