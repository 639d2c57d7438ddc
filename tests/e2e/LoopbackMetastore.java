import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/** The Hive metastore that comes with Spark, on the loopback address: its own launcher would listen on every one. */
public final class LoopbackMetastore {
    public static void main(String[] words) throws Exception {
        HiveConf conf = new HiveConf();
        conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + words[1] + "/db;create=true");
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("hive.metastore.schema.verification", "false");
        conf.set("datanucleus.connectionPoolingType", "HIKARICP");
        conf.set("hive.metastore.warehouse.dir", words[1] + "/warehouse");
        IHMSHandler handler =
            RetryingHMSHandler.getProxy(conf, new HiveMetaStore.HMSHandler("loopback", conf, false), false);
        TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])));
        TThreadPoolServer.Args given = new TThreadPoolServer.Args(socket);
        TThreadPoolServer server =
            new TThreadPoolServer(given.processor(new ThriftHiveMetastore.Processor<>(handler)));
        System.out.println("listening");
        server.serve();
    }
}
