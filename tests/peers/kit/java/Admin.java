import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's mqadmin, many commands in one process: reads lines of words parted by tabs, runs each as the tool would run it, one after the other,
 * and prints for each one line: what the tool wrote to its standard output and to its standard error, both in hex, parted by a blank and
 * after a mark. Options that the tool cannot read end the process, as they end the tool.
 */
public final class Admin {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Field commands = MQAdminStartup.class.getDeclaredField("subCommandList");
        commands.setAccessible(true);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            ByteArrayOutputStream error = new ByteArrayOutputStream();
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(error, true, StandardCharsets.UTF_8));
            ((List<?>) commands.get(null)).clear();  // every start of the tool adds them all
            MQAdminStartup.main0(line.split("\t", -1), null);
            System.out.flush();
            System.err.flush();
            answers.println("> " + hex(output) + " " + hex(error));
            answers.flush();
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String hex(ByteArrayOutputStream bytes) {
        StringBuilder text = new StringBuilder("x");
        for (byte one : bytes.toByteArray()) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }
}
