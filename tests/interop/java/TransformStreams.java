import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;

/** Copies one topic to another with exactly_once_v2 until it is killed. */
public class TransformStreams {
    public static void main(String[] given) {
        Properties config = new Properties();
        config.put("bootstrap.servers", given[0]);
        config.put("application.id", given[3]);
        config.put("state.dir", given[6] + "/" + given[4] + "-" + given[5]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("commit.interval.ms", "100");
        config.put("default.key.serde", Serdes.ByteArraySerde.class);
        config.put("default.value.serde", Serdes.ByteArraySerde.class);
        config.put("auto.offset.reset", "earliest");
        config.put("session.timeout.ms", "3000");
        config.put("heartbeat.interval.ms", "500");
        config.put("transaction.timeout.ms", "20000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(given[1]).to(given[2]);
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("begins anew: " + error);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }
}
