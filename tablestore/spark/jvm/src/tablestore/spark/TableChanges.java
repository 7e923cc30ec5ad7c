package tablestore.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.catalog.TableChange;
import scala.Product;

/** Describes the changes of an ALTER TABLE for Python. */
final class TableChanges {
  private TableChanges() {}

  /** Writes a change into a node: its kind, and what belongs to it. */
  static void describe(TableChange change, ObjectNode node) {
    if (change instanceof TableChange.SetProperty set) {
      node.put("kind", "set").put("name", set.property()).put("value", set.value());
    } else if (change instanceof TableChange.RemoveProperty remove) {
      node.put("kind", "unset").put("name", remove.property());
    } else if (change instanceof TableChange.AddConstraint add) {
      node.put("kind", "AddConstraint").put("name", add.constraint().name());
    } else if (change instanceof TableChange.DropConstraint drop) {
      node.put("kind", "DropConstraint").put("name", drop.name()).put("if_exists", drop.ifExists());
    } else if (change instanceof Product delta) {
      // of some clauses Delta's parser makes changes of its own, such as DropConstraint(name, ifExists)
      node.put("kind", delta.productPrefix()).put("name", delta.productElement(0).toString());
      node.put("if_exists", delta.productArity() > 1 && Boolean.TRUE.equals(delta.productElement(1)));
    } else if (change instanceof TableChange.ColumnChange column) {
      node.put("name", topLevel(column.fieldNames()));
      describeColumn(column, node);
    } else {
      throw refused(change);
    }
  }

  private static void describeColumn(TableChange.ColumnChange change, ObjectNode node) {
    if (change instanceof TableChange.AddColumn add) {
      node.put("kind", "add").put("default", add.defaultValue() != null).put("type", add.dataType().json());
      node.put("nullable", add.isNullable()).put("comment", add.comment());
      putPosition(add.position(), node);
    } else if (change instanceof TableChange.DeleteColumn drop) {
      node.put("kind", "drop").put("if_exists", drop.ifExists());
    } else if (change instanceof TableChange.RenameColumn rename) {
      node.put("kind", "rename").put("new_name", rename.newName());
    } else if (change instanceof TableChange.UpdateColumnType type) {
      node.put("kind", "type").put("type", type.newDataType().json());
    } else if (change instanceof TableChange.UpdateColumnDefaultValue) {
      node.put("kind", "default");
    } else if (change instanceof TableChange.UpdateColumnNullability nullability) {
      node.put("kind", "nullable").put("nullable", nullability.nullable());
    } else if (change instanceof TableChange.UpdateColumnComment comment) {
      node.put("kind", "comment").put("comment", comment.newComment());
    } else if (change instanceof TableChange.UpdateColumnPosition move) {
      node.put("kind", "move");
      putPosition(move.position(), node);
    } else {
      throw refused(change);
    }
  }

  private static void putPosition(TableChange.ColumnPosition position, ObjectNode node) {
    if (position instanceof TableChange.After after) {
      node.put("after", after.column());
    } else if (position != null) {
      node.put("first", true);
    }
  }

  private static String topLevel(String[] names) {
    if (names.length == 1) {
      return names[0];
    }
    throw Refusals.plain(
        "unsupported", String.join(".", names) + " is a field inside of a column: only whole columns can be changed");
  }

  private static RuntimeException refused(TableChange change) {
    return Refusals.plain("unsupported", "ALTER TABLE cannot do this: " + change.getClass().getSimpleName());
  }
}
