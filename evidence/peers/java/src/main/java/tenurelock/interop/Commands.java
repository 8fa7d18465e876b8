// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.interop;

import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.GetLockOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import com.amazonaws.services.dynamodbv2.ReleaseLockOptions;
import com.amazonaws.services.dynamodbv2.SendHeartbeatOptions;
import com.amazonaws.services.dynamodbv2.model.LockNotGrantedException;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.AttributeValue;

/** The commands, each a call or two of the lock client. */
final class Commands {
    /** The client and what every request of it needs. */
    record Opened(AmazonDynamoDBLockClient client, DynamoDbClient dynamo, CompletableFuture<Long> drainMs) {}

    private final Map<String, LockItem> handles = new ConcurrentHashMap<>();
    private volatile Opened opened;

    JsonObject run(final JsonObject request) throws Exception {
        final String command = string(request, "cmd", "");
        switch (command) {
            case "open":
                return open(request);
            case "acquire":
                return acquire(request);
            case "release":
                return release(request);
            case "get":
                return get(request);
            case "list":
                return list();
            case "heartbeat":
                return heartbeat(request);
            case "holds":
                return holds(request);
            case "work":
                return new Work(opened(), request).run();
            case "ping":
                return new JsonObject();
            case "end":
                opened().drainMs().complete(number(request, "drainMs", 0));
                return close();
            case "close":
                return close();
            default:
                throw new Refusal(Refusal.UNSUPPORTED, "no command " + command);
        }
    }

    private JsonObject open(final JsonObject request) throws Refusal {
        if (opened != null) {
            throw new Refusal(Refusal.OTHER, "already open");
        }
        final DynamoDbClient dynamo = DynamoDbClient.builder()
                .endpointOverride(URI.create(string(request, "endpoint", "")))
                .region(Region.of(string(request, "region", "local")))
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local")))
                .httpClientBuilder(UrlConnectionHttpClient.builder())
                .build();
        final String table = string(request, "table", "");
        final String owner = string(request, "owner", "");
        final long heartbeatMs = number(request, "heartbeatMs", 5000);
        final var options = AmazonDynamoDBLockClientOptions.builder(dynamo, table)
                .withTimeUnit(TimeUnit.MILLISECONDS)
                .withLeaseDuration(number(request, "leaseMs", 20000))
                .withHeartbeatPeriod(heartbeatMs)
                .withCreateHeartbeatBackgroundThread(heartbeatMs > 0);
        if (!owner.isEmpty()) {
            options.withOwnerName(owner);
        }
        final var client = new AmazonDynamoDBLockClient(options.build());
        opened = new Opened(client, dynamo, new CompletableFuture<>());
        return new JsonObject();
    }

    private Opened opened() throws Refusal {
        final Opened now = opened;
        if (now == null) {
            throw new Refusal(Refusal.OTHER, "not open");
        }
        return now;
    }

    /** The acquire options of a request, of acquire or of work. */
    static AcquireLockOptions acquireOptions(final JsonObject request) {
        final var options = AcquireLockOptions.builder(string(request, "name", ""))
                .withTimeUnit(TimeUnit.MILLISECONDS)
                .withShouldSkipBlockingWait(flag(request, "tryOnly", false))
                .withUpdateExistingLockRecord(flag(request, "updateExisting", false));
        if (request.has("dataBase64")) {
            options.withData(data(request));
        }
        if (request.has("waitMs")) {
            options.withAdditionalTimeToWaitForLock(number(request, "waitMs", 0));
        }
        if (request.has("refreshMs")) {
            options.withRefreshPeriod(number(request, "refreshMs", 0));
        }
        if (request.has("replaceData")) {
            options.withReplaceData(flag(request, "replaceData", true));
        }
        if (request.has("deleteOnRelease")) {
            options.withDeleteLockOnRelease(flag(request, "deleteOnRelease", true));
        }
        if (request.has("attributes")) {
            final Map<String, AttributeValue> attributes = new HashMap<>();
            request.getAsJsonObject("attributes")
                    .entrySet()
                    .forEach(e -> attributes.put(
                            e.getKey(),
                            AttributeValue.builder().s(e.getValue().getAsString()).build()));
            options.withAdditionalAttributes(attributes);
        }
        return options.build();
    }

    private JsonObject acquire(final JsonObject request) throws Exception {
        final Opened now = opened();
        final AcquireLockOptions options = acquireOptions(request);
        final LockItem item;
        final long sent = System.nanoTime();
        try {
            item = now.client().acquireLock(options);
        } catch (final RuntimeException e) {
            throw new Refusal(Refusal.kindOfAcquire(e), e);
        }
        final long got = System.nanoTime();
        handles.put(string(request, "name", ""), item);
        final JsonObject answer = describe(item);
        instants(answer, sent, got);
        return answer;
    }

    private JsonObject release(final JsonObject request) throws Refusal {
        final var options = ReleaseLockOptions.builder(handle(request));
        if (request.has("delete")) {
            options.withDeleteLock(flag(request, "delete", true));
        } else {
            options.withDeleteLock(handle(request).getDeleteLockItemOnClose());
        }
        if (request.has("dataBase64")) {
            options.withData(data(request));
        }
        if (!opened().client().releaseLock(options.build())) {
            throw new Refusal(Refusal.LOST, "releaseLock said false");
        }
        return new JsonObject();
    }

    private JsonObject get(final JsonObject request) throws Refusal {
        final Opened now = opened();
        final String name = string(request, "name", "");
        final Optional<LockItem> lock = now.client().getLock(name, Optional.empty());
        if (lock.isPresent()) {
            final JsonObject answer = describe(lock.get());
            answer.addProperty("present", true);
            answer.addProperty("released", false);
            return answer;
        }
        // getLock is empty for a released row as well as for none.
        final Optional<LockItem> row =
                now.client().getLockFromDynamoDB(GetLockOptions.builder(name).build());
        final JsonObject answer = row.map(Commands::describe).orElseGet(JsonObject::new);
        answer.addProperty("present", row.isPresent());
        if (row.isPresent()) {
            answer.addProperty("released", true);
        }
        return answer;
    }

    private JsonObject list() throws Refusal {
        final JsonArray locks = new JsonArray();
        try (Stream<LockItem> items = opened().client().getAllLocksFromDynamoDB(false)) {
            items.map(Commands::describe).forEach(locks::add);
        }
        final JsonObject answer = new JsonObject();
        answer.add("locks", locks);
        return answer;
    }

    private JsonObject heartbeat(final JsonObject request) throws Refusal {
        final var options = SendHeartbeatOptions.builder(handle(request));
        if (request.has("dataBase64")) {
            options.withData(data(request));
        }
        try {
            opened().client().sendHeartbeat(options.build());
        } catch (final LockNotGrantedException e) {
            throw new Refusal(Refusal.LOST, e);
        }
        return new JsonObject();
    }

    private JsonObject holds(final JsonObject request) throws Refusal {
        final JsonObject answer = new JsonObject();
        answer.addProperty("holds", !handle(request).isExpired());
        return answer;
    }

    private JsonObject close() throws Exception {
        final Opened now = opened();
        now.client().close();
        now.dynamo().close();
        opened = null;
        return new JsonObject();
    }

    private LockItem handle(final JsonObject request) throws Refusal {
        final LockItem item = handles.get(string(request, "name", ""));
        if (item == null) {
            throw new Refusal(Refusal.OTHER, "no handle of " + string(request, "name", ""));
        }
        return item;
    }

    private static JsonObject describe(final LockItem item) {
        final JsonObject lock = new JsonObject();
        lock.addProperty("name", item.getPartitionKey());
        lock.addProperty("owner", item.getOwnerName());
        item.getData().ifPresent(data -> {
            final byte[] bytes = new byte[data.remaining()];
            data.duplicate().get(bytes);
            lock.addProperty("dataBase64", Base64.getEncoder().encodeToString(bytes));
        });
        final JsonObject strings = new JsonObject();
        item.getAdditionalAttributes().forEach((name, value) -> {
            if (value.s() != null) {
                strings.addProperty(name, value.s());
            }
        });
        lock.add("attributes", strings);
        return lock;
    }

    static void instants(final JsonObject answer, final long sentNs, final long gotNs) {
        answer.addProperty("sentNs", sentNs);
        answer.addProperty("gotNs", gotNs);
        answer.addProperty("elapsedMs", (gotNs - sentNs) / 1e6);
    }

    static String string(final JsonObject request, final String name, final String otherwise) {
        final JsonElement value = request.get(name);
        return value == null ? otherwise : value.getAsString();
    }

    static long number(final JsonObject request, final String name, final long otherwise) {
        final JsonElement value = request.get(name);
        return value == null ? otherwise : value.getAsLong();
    }

    static boolean flag(final JsonObject request, final String name, final boolean otherwise) {
        final JsonElement value = request.get(name);
        return value == null ? otherwise : value.getAsBoolean();
    }

    private static ByteBuffer data(final JsonObject request) {
        return ByteBuffer.wrap(Base64.getDecoder().decode(string(request, "dataBase64", "")));
    }
}
