// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurelock.peer;

import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.GetLockOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import com.amazonaws.services.dynamodbv2.ReleaseLockOptions;
import com.amazonaws.services.dynamodbv2.SendHeartbeatOptions;
import com.amazonaws.services.dynamodbv2.model.LockCurrentlyUnavailableException;
import com.amazonaws.services.dynamodbv2.model.LockNotGrantedException;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.ToNumberPolicy;
import com.google.gson.reflect.TypeToken;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.AttributeValue;

/** com.amazonaws:dynamodb-lock-client. */
final class LockClient implements Library {
    private static final String POM_PROPERTIES =
            "/META-INF/maven/com.amazonaws/dynamodb-lock-client/pom.properties";

    private final Gson gson = new GsonBuilder()
            .setObjectToNumberStrategy(ToNumberPolicy.LONG_OR_DOUBLE)
            .create();
    private AmazonDynamoDBLockClient client;
    private DynamoDbClient dynamo;

    public static void main(final String[] args) throws IOException {
        new Peer(new LockClient()).serve();
    }

    @Override
    public Map<String, Object> about() {
        final Properties pom = new Properties();
        try (InputStream in = LockClient.class.getResourceAsStream(POM_PROPERTIES)) {
            if (in != null) {
                pom.load(in);
            }
        } catch (final IOException e) {
            throw new UncheckedIOException(e);
        }
        final String runtime = "java " + System.getProperty("java.version");
        return Map.of("version", pom.getProperty("version", ""), "runtime", runtime);
    }

    @Override
    public Map<String, Object> read(final String line) {
        return gson.fromJson(line, new TypeToken<Map<String, Object>>() {});
    }

    @Override
    public String write(final Map<String, Object> line) {
        return gson.toJson(line);
    }

    @Override
    public void open(final Request request) {
        dynamo = DynamoDbClient.builder()
                .endpointOverride(URI.create(request.text("endpoint")))
                .region(Region.US_EAST_1)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local")))
                .httpClientBuilder(UrlConnectionHttpClient.builder())
                .build();
        final long heartbeatMs = request.number("heartbeatMs").orElse(5000L);
        final var options = AmazonDynamoDBLockClientOptions.builder(dynamo, request.text("table"))
                .withTimeUnit(TimeUnit.MILLISECONDS)
                .withLeaseDuration(request.number("leaseMs").orElse(20_000L))
                .withHeartbeatPeriod(heartbeatMs)
                .withCreateHeartbeatBackgroundThread(heartbeatMs > 0);
        if (request.has("owner")) {
            options.withOwnerName(request.text("owner"));
        }
        client = new AmazonDynamoDBLockClient(options.build());
    }

    @Override
    public void close() throws IOException {
        client.close();
        dynamo.close();
    }

    @Override
    public void end() throws IOException {
        close();
    }

    @Override
    public Held acquire(final Request request) throws Exception {
        final var options = AcquireLockOptions.builder(request.text("name"))
                .withTimeUnit(TimeUnit.MILLISECONDS)
                .withShouldSkipBlockingWait(request.flag("tryOnly"))
                .withUpdateExistingLockRecord(request.flag("updateExisting"));
        request.number("waitMs").ifPresent(options::withAdditionalTimeToWaitForLock);
        request.number("refreshMs").ifPresent(options::withRefreshPeriod);
        if (request.has("dataBase64")) {
            options.withData(request.data());
        }
        if (request.has("replaceData")) {
            options.withReplaceData(request.flag("replaceData"));
        }
        if (request.has("deleteOnRelease")) {
            options.withDeleteLockOnRelease(request.flag("deleteOnRelease"));
        }
        if (request.fields().get("attributes") instanceof Map<?, ?> strings) {
            final Map<String, AttributeValue> attributes = new HashMap<>();
            strings.forEach((name, value) -> attributes.put(
                    name.toString(), AttributeValue.builder().s(value.toString()).build()));
            options.withAdditionalAttributes(attributes);
        }
        return new Item(client, client.acquireLock(options.build()));
    }

    @Override
    public String kind(final Throwable thrown, final Request request) {
        final boolean refused = thrown instanceof LockNotGrantedException;
        if (thrown instanceof IllegalMonitorStateException || refused && request.text("cmd").equals("heartbeat")) {
            return "lost";
        }
        if (!refused && !(thrown instanceof LockCurrentlyUnavailableException)) {
            return "other";
        }
        // The client has no type of its own for a timeout.
        final boolean waited = String.valueOf(thrown.getMessage()).startsWith("Didn't acquire lock after sleeping");
        return waited ? "timeout" : "held";
    }

    @Override
    public Map<String, Object> other(final Request request, final Held lock) throws Exception {
        switch (request.text("cmd")) {
            case "get":
                return get(request.text("name"));
            case "list":
                try (Stream<LockItem> items = client.getAllLocksFromDynamoDB(false)) {
                    return Map.of("locks", items.map(LockClient::describe).toList());
                }
            case "heartbeat":
                final var options = SendHeartbeatOptions.builder(((Item) lock).item());
                if (request.has("dataBase64")) {
                    options.withData(request.data());
                }
                client.sendHeartbeat(options.build());
                return Map.of();
            default:
                return Library.super.other(request, lock);
        }
    }

    private Map<String, Object> get(final String name) {
        final Optional<LockItem> lock = client.getLock(name, Optional.empty());
        // That is empty for a released row as well as for none.
        final Optional<LockItem> row = lock.isPresent()
                ? lock
                : client.getLockFromDynamoDB(GetLockOptions.builder(name).build());
        final Map<String, Object> answer = row.map(LockClient::describe).orElseGet(HashMap::new);
        answer.put("present", row.isPresent());
        if (row.isPresent()) {
            answer.put("released", lock.isEmpty());
        }
        return answer;
    }

    private static Map<String, Object> describe(final LockItem item) {
        final Map<String, Object> lock = new HashMap<>();
        lock.put("name", item.getPartitionKey());
        lock.put("owner", item.getOwnerName());
        item.getData().ifPresent(data -> {
            final byte[] bytes = new byte[data.remaining()];
            data.duplicate().get(bytes);
            lock.put("dataBase64", Base64.getEncoder().encodeToString(bytes));
        });
        final Map<String, String> strings = new HashMap<>();
        item.getAdditionalAttributes().forEach((name, value) -> {
            if (value.s() != null) {
                strings.put(name, value.s());
            }
        });
        lock.put("attributes", strings);
        return lock;
    }

    private record Item(AmazonDynamoDBLockClient client, LockItem item) implements Held {
        @Override
        public boolean check() {
            return !item.isExpired();
        }

        @Override
        public String owner() {
            return item.getOwnerName();
        }

        @Override
        public Map<String, Object> describe() {
            return LockClient.describe(item);
        }

        @Override
        public void release(final Request request) {
            final boolean delete = request.has("delete") ? request.flag("delete") : item.getDeleteLockItemOnClose();
            final var options = ReleaseLockOptions.builder(item).withDeleteLock(delete);
            if (request.has("dataBase64")) {
                options.withData(request.data());
            }
            if (!client.releaseLock(options.build())) {
                throw new IllegalMonitorStateException("releaseLock said false");
            }
        }
    }
}
