import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Does in one process what many files of properties ask for, and tells how each ended.
 *
 * Each file has the settings of a client, and beside them `case.name`, `case.topic` and
 * `case.action`: write, read, both, list, create, transact. A line says the name and `done`, or
 * the exceptions from the outside in, and the first one's words.
 */
public final class SecuredClient {
    private static final int COUNT = 20;
    private static final Duration LIMIT = Duration.ofSeconds(60);

    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties settings = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(file))) {
                settings.load(reader);
            }
            String name = (String) settings.remove("case.name");
            String action = (String) settings.remove("case.action");
            String topic = (String) settings.remove("case.topic");
            String outcome;
            try {
                act(action, topic, settings);
                outcome = "done";
            } catch (Exception | Error error) {
                outcome = tell(error);
            }
            System.out.println("outcome " + name + " " + outcome);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String tell(Throwable error) {
        StringBuilder told = new StringBuilder();
        String words = null;
        for (Throwable one = error; one != null; one = one.getCause()) {
            if (!(one instanceof ExecutionException)) {
                told.append(told.length() == 0 ? "" : ",").append(one.getClass().getSimpleName());
                words = words == null ? one.getMessage() : words;
            }
        }
        return told + " " + String.valueOf(words).replace('\n', ' ');
    }

    private static void act(String action, String topic, Properties settings) throws Exception {
        switch (action) {
            case "write" -> write(topic, settings);
            case "read" -> read(topic, settings);
            case "both" -> {
                write(topic, settings);
                read(topic, settings);
            }
            case "list" -> list(settings);
            case "create" -> create(topic, settings);
            case "transact" -> transact(topic, settings);
            default -> throw new IllegalArgumentException(action);
        }
    }

    private static Map<String, Object> with(Properties settings, String... more) {
        Map<String, Object> all = new HashMap<>();
        settings.forEach((name, value) -> all.put((String) name, value));
        for (int at = 0; at < more.length; at += 2) {
            all.putIfAbsent(more[at], more[at + 1]);
        }
        return all;
    }

    private static void write(String topic, Properties settings) throws Exception {
        Map<String, Object> all = with(settings, "max.block.ms", "20000");
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(all, text, text)) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(new ProducerRecord<>(topic, "value " + number)).get();
            }
        }
    }

    private static void transact(String topic, Properties settings) throws Exception {
        Map<String, Object> all = with(settings, "max.block.ms", "20000", "transactional.id", topic);
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(all, text, text)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "whole")).get();
            producer.commitTransaction();
        }
    }

    private static void read(String topic, Properties settings) {
        Map<String, Object> all = with(settings, "group.id", topic, "auto.offset.reset", "earliest");
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(all, text, text)) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + LIMIT.toNanos();
            int count = 0;
            while (count < COUNT) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                count += records.count();
                if (System.nanoTime() > end) {
                    throw new IllegalStateException(count + " records in " + LIMIT);
                }
            }
            consumer.commitSync();
        }
    }

    private static void list(Properties settings) throws Exception {
        try (Admin admin = Admin.create(with(settings))) {
            admin.listTopics().names().get(LIMIT.toSeconds(), TimeUnit.SECONDS);
        }
    }

    private static void create(String topic, Properties settings) throws Exception {
        try (Admin admin = Admin.create(with(settings))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1)), new CreateTopicsOptions())
                .all().get(LIMIT.toSeconds(), TimeUnit.SECONDS);
        }
    }
}
