import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

/** Copies one topic to another exactly once until it is killed; some transactions are aborted. */
public class TransformWorker {
    static final Map<TopicPartition, Long> first = new HashMap<>();

    static void work(String bootstrap, String source, String target, String group, String number, Random chance) {
        Map<String, Object> reading = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "isolation.level", "read_committed",
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "session.timeout.ms", "3000",
            "heartbeat.interval.ms", "500", "max.poll.records", "10",
            "key.deserializer", ByteArrayDeserializer.class));
        reading.put("value.deserializer", ByteArrayDeserializer.class);
        Map<String, Object> writing = Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", group + "-" + number,
            "transaction.timeout.ms", "20000",
            "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading);
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writing)) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                first.clear();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    first.putIfAbsent(new TopicPartition(record.topic(), record.partition()), record.offset());
                    producer.send(new ProducerRecord<>(target, record.key(), record.value()));
                }
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                if (chance.nextDouble() >= 0.2) {
                    producer.commitTransaction();
                    continue;
                }
                producer.flush();
                producer.abortTransaction();
                first.forEach(consumer::seek);
            }
        }
    }

    public static void main(String[] given) {
        Random chance = new Random(Long.parseLong(given[5]));
        while (true) {
            try {
                work(given[0], given[1], given[2], given[3], given[4], chance);
            } catch (KafkaException error) {
                System.out.println("begins anew: " + error); // fenced, or a broker that is not there
            }
        }
    }
}
