package varve;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A catalog of procedures over Spark's metastore, each in one call.
 *
 * <ul>
 *   <li>{@code CALL name.move(db, table, partitions, locations)} points existing partitions of a table at other folders,
 *       all or none. Spark's ALTER TABLE moves one with each statement. A metastore that is deployed can be asked in its
 *       own protocol; the embedded one only within its own JVM.
 *   <li>{@code CALL name.execute(statements)} executes statements that have no rows, one after another, up to the first
 *       that fails.
 * </ul>
 *
 * <p>Both do it in one thread, which lives as long as the JVM. The embedded metastore makes a store for each thread that
 * asks it, of which the settings alone, read from the jars again, take as long as what is asked; and Spark Connect has a
 * new thread for each statement.
 */
public class Metastore implements ProcedureCatalog {
  private static final DataType TEXTS = DataTypes.createArrayType(DataTypes.StringType);
  private static final DataType KEYS =
      DataTypes.createArrayType(DataTypes.createMapType(DataTypes.StringType, DataTypes.StringType));
  private static final ExecutorService THREAD = Executors.newSingleThreadExecutor(Metastore::daemon);

  private String name;

  @Override
  public void initialize(String givenName, CaseInsensitiveStringMap options) {
    name = givenName;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    return namespace.length != 0
        ? new Identifier[0]
        : new Identifier[] {Identifier.of(namespace, "move"), Identifier.of(namespace, "execute")};
  }

  @Override
  public UnboundProcedure loadProcedure(Identifier identifier) {
    if (identifier.namespace().length == 0 && identifier.name().equals("move")) {
      return new Move();
    }
    if (identifier.namespace().length == 0 && identifier.name().equals("execute")) {
      return new Execute();
    }
    throw new IllegalArgumentException("There is no procedure " + identifier + " in " + name + ".");
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "varve-metastore");
    thread.setDaemon(true);
    return thread;
  }

  /** Scala declares no exceptions: Spark's own go through its interfaces without being named. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E asItIs(Throwable error) throws E {
    throw (E) error;
  }

  /** A procedure that takes constants, gives no rows, and works in the thread of the metastore. */
  private abstract static class Procedure implements UnboundProcedure, BoundProcedure {
    abstract void work(SparkSession session, InternalRow given);

    @Override
    public BoundProcedure bind(StructType given) {
      return this;
    }

    @Override
    public boolean isDeterministic() {
      return false;
    }

    @Override
    public Iterator<Scan> call(InternalRow given) {
      SparkSession session = SparkSession.active();
      Callable<Object> work =
          () ->
              session.withActive(
                  () -> {
                    work(session, given);
                    return null;
                  });
      try {
        THREAD.submit(work).get();
      } catch (ExecutionException error) {
        throw Metastore.<RuntimeException>asItIs(error.getCause());
      } catch (InterruptedException error) {
        throw Metastore.<RuntimeException>asItIs(error);
      }
      return Collections.emptyIterator();
    }
  }

  private static class Execute extends Procedure {
    @Override
    public String name() {
      return "execute";
    }

    @Override
    public ProcedureParameter[] parameters() {
      return new ProcedureParameter[] {ProcedureParameter.in("statements", TEXTS).build()};
    }

    @Override
    void work(SparkSession session, InternalRow given) {
      ArrayData statements = given.getArray(0);
      for (int number = 0; number < statements.numElements(); number++) {
        session.sql(statements.getUTF8String(number).toString());
      }
    }
  }

  private static class Move extends Procedure {
    @Override
    public String name() {
      return "move";
    }

    @Override
    public ProcedureParameter[] parameters() {
      return new ProcedureParameter[] {
        ProcedureParameter.in("db", DataTypes.StringType).build(),
        ProcedureParameter.in("table", DataTypes.StringType).build(),
        ProcedureParameter.in("partitions", KEYS).comment("the columns of each, with their values").build(),
        ProcedureParameter.in("locations", TEXTS).comment("the folder of each").build(),
      };
    }

    @Override
    void work(SparkSession session, InternalRow given) {
      SessionCatalog catalog = session.sessionState().catalog();
      TableIdentifier table = new TableIdentifier(given.getString(1), Option.apply(given.getString(0)));
      // As a partition that Spark itself adds.
      CatalogStorageFormat storage = storageOf(catalog, table);
      ArrayData partitions = given.getArray(2);
      ArrayData locations = given.getArray(3);
      List<CatalogTablePartition> moved = new ArrayList<>();
      for (int number = 0; number < partitions.numElements(); number++) {
        moved.add(partition(partitions.getMap(number), locations.getUTF8String(number).toString(), storage));
      }
      catalog.alterPartitions(table, CollectionConverters.asScala(moved).toSeq());
      catalog.refreshTable(table);
    }

    private static CatalogStorageFormat storageOf(SessionCatalog catalog, TableIdentifier table) {
      try {
        return catalog.getTableMetadata(table).storage();
      } catch (NoSuchNamespaceException | NoSuchTableException error) {
        throw Metastore.<RuntimeException>asItIs(error);
      }
    }

    private static CatalogTablePartition partition(MapData key, String location, CatalogStorageFormat storage) {
      Map<String, String> values = new HashMap<>();
      for (int number = 0; number < key.numElements(); number++) {
        UTF8String value = key.valueArray().getUTF8String(number);
        values.put(key.keyArray().getUTF8String(number).toString(), value.toString());
      }
      CatalogStorageFormat there = storage.copy(
          Option.apply(CatalogUtils.stringToURI(location)), storage.inputFormat(), storage.outputFormat(),
          storage.serde(), storage.compressed(), storage.properties(), storage.serdeName());
      long now = System.currentTimeMillis();
      return new CatalogTablePartition(
          immutable(values), there, immutable(Collections.emptyMap()), now, now, Option.empty());
    }

    private static scala.collection.immutable.Map<String, String> immutable(Map<String, String> values) {
      return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(values));
    }
  }
}
